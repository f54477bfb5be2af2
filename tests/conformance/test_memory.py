"""What a token and a running request take is what the real engine's own configurator says, for the configs of many families."""

import json
import os
import subprocess
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conformance.samples import CONFIGS

from vlm_api.plan import Source
from vlm_operator.facts.model.config import facts_of_config
from vlm_operator.sglang.context import Context, Declared, applied
from vlm_operator.sglang.memory import kv_bytes_per_token, state_bytes
from vlm_operator.sglang.states import slots_per_request

WAYS = ("", "--tp-size 2", "--disable-radix-cache")


@pytest.fixture(scope="module")
def answers(engine_site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    """(model, arguments) -> the engine's answer."""
    folder, asked = tmp_path_factory.mktemp("configs"), list(product(CONFIGS, WAYS))
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        ["python3.11", str(Path(__file__).with_name("memory_worker.py"))],
        input="\n".join(json.dumps({"folder": str(folder / name), "args": way.split()}) for name, way in asked),
        env=os.environ | {"PYTHONPATH": str(engine_site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(asked, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CONFIGS)
def test_tokens_and_states_take_what_the_engine_says(name: str, way: str, answers):
    facts, tensor = facts_of_config(CONFIGS[name], None), 2 if "--tp-size" in way else 1
    declared = Declared()
    if "radix" in way:
        declared.add(applied("disable_radix_cache", True, Source.USER, "", ""))
    states = state_bytes(facts, tensor, 1)
    context = cast("Context", SimpleNamespace(model=facts))
    told = answers[name, way]
    assert told | {"kv": int(told["kv"])} == {
        "kv": kv_bytes_per_token(facts, tensor, 1),
        "state": states,
        "slots": slots_per_request(context, declared) if states else None,
    }
