"""The unchanged engine and a tiny model, both made by ``python3 tests/cluster/cluster.py engine``."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from unit.runtime.harness import Container, make_plan

from vlm_runtime.install import install

STATE = Path(__file__).resolve().parents[2] / ".cluster"
ENGINE = STATE / "engine"
MODEL = STATE / "models" / "tiny-qwen3-vl"
KEY = "sk-a-key-that-must-not-be-seen"

ARGS = [
    "--model-path", str(MODEL), "--served-model-name", "tiny", "--device", "cpu", "--max-total-tokens", "8192",
    "--max-running-requests", "8", "--enable-metrics", "--host", "0.0.0.0",
]  # fmt: skip
ENV = {"TORCHDYNAMO_DISABLE": "1", "SGLANG_EXPOSE_OWN_ENV_VARS": "1", "SGLANG_VLM_CACHE_SIZE_MB": "64"}

# The engine's image has a Python of its own, without this environment's packages.
PYTHON = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")

Start = Callable[..., Container]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime as the init container leaves it beside the engine."""
    for path in (ENGINE / "sglang", MODEL / "config.json"):
        if not path.exists():
            pytest.fail(f"{path} is missing: make it with `python3 tests/cluster/cluster.py engine`", pytrace=False)
    dest = tmp_path_factory.mktemp("vlmserve")
    install(dest)
    return dest


def start_below_runtime(
    library: Path,
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    within: Sequence[str] = (),
    **plan: Any,
) -> Container:
    """Starts the engine as its container does. ``within``: a command that runs the runtime in surroundings of its own."""
    return Container(
        folder,
        make_plan(**plan),
        program=[*within, PYTHON, str(library / "start.py")],
        options=options,
        env={"PYTHONPATH": str(ENGINE), "VLMSERVE_API_KEY": KEY, "HF_HUB_OFFLINE": "1", **(env or {})},
    )


@pytest.fixture(scope="module")
def engine(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts the engine below the runtime; ``args`` come after the usual ones, the rest replaces parts of the plan."""
    started: list[Container] = []

    def start(args: list[str] | None = None, **plan: Any) -> Container:
        for earlier in started:
            earlier.end()  # two engines at once are too much for two cores
        plan.setdefault("engine", {"args": [*ARGS, *(args or [])], "env": ENV})
        plan.setdefault("runtime", {"startup_budget_seconds": 400, "drain_seconds": 60})
        started.append(start_below_runtime(library, tmp_path_factory.mktemp("pod"), **plan))
        return started[-1]

    yield start
    for run in started:
        run.end()
