"""The plan and the real engine agree: SGLang resolves what is planned, on the GPU that it is planned for.

The GPU is described, not there: see resolve_worker.py. Everything else is the engine's own code.

The newest release runs as it is installed. Older ones are their own wheels beside the newest one's dependencies, which works
from 0.5.19 on; before, there is no seam to describe a GPU by, and test_older_releases.py asks their parsers alone.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conformance.samples import CONFIGS, PROFILED, Sample, samples
from unit.plan.builders import RUNTIME_IMAGE, cluster, node, request_of

from vlm_api.plan import ServingPlan
from vlm_api.status import VLMService
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.model.config import facts_of_config
from vlm_operator.plan.make import make_plan
from vlm_operator.sglang.catalogue.releases import newest

SEED = 36_411
LONG = bool(os.environ.get("VLM_TEST_LONG"))
# Release -> random services. The last one without the Hopper set, the first with it, one between, and the newest.
# `make test-long` asks for more.
AGREEMENTS_WANTED = dict.fromkeys(("0.5.19", "0.5.20", "0.5.22"), 300 if LONG else 150) | {
    newest(): 2000 if LONG else 300
}
FAMILIES_WANTED, GPUS_WANTED = 8, 11
WORKERS = 2

# Setting -> where the engine's answer has it.
FIELD_SETTINGS = (
    "attention_backend",
    "decode_attention_backend",
    "max_running_requests",
    "mm_feature_transport",
    "mm_preprocess_cache_size_mb",
    "prefill_decode_interval",
    "radix_eviction_policy",
)


@pytest.fixture(scope="module")
def models(engine_site: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model -> a folder with its config.json and a tokenizer. The resolution reads no weights."""
    folders = {}
    for name, config in CONFIGS.items():
        folder = tmp_path_factory.mktemp(name)
        for file in tiny_model.iterdir():
            if file.suffix != ".safetensors" and file.name != "config.json":
                (folder / file.name).symlink_to(file)
        (folder / "config.json").write_text(json.dumps(config))
        folders[name] = folder
    return folders


def planned(sample: Sample) -> ServingPlan | None:
    """The plan for a sample, or None where it is refused: a random mix of what users write may contradict itself."""
    major, minor = sample.capability
    nodes = [
        node(f"node-{i}", sample.product, sample.memory_mib, f"{major}.{minor}", count=8) for i in range(sample.nodes)
    ]
    try:
        service = VLMService.model_validate({"metadata": {"name": "sample"}, "spec": sample.spec})
        facts = facts_of_config(CONFIGS[sample.model], None)
        plan = make_plan(request_of(service), cluster(*nodes), runtime_image=RUNTIME_IMAGE, inspected=facts)
    except InvalidInput:
        return None
    return None if plan.errors else plan


def request(sample: Sample, plan: ServingPlan, models: dict[str, Path]) -> dict[str, Any]:
    args = list(plan.engine.args)
    for flag in {"--model-path", "--speculative-draft-model-path"} & set(args):
        args[args.index(flag) + 1] = str(models[sample.model])
    if sample.nodes > 1:  # what the runtime adds in each pod of a group
        args += ["--nnodes", str(sample.nodes), "--node-rank", "0", "--dist-init-addr", "127.0.0.1:20000"]
    return {"args": args, "env": plan.engine.env, "capability": sample.capability, "memoryMiB": sample.memory_mib}


def resolved(path: str | Path, requests: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The answers of the engine on that PYTHONPATH, in order."""
    done = subprocess.run(
        ["python3.11", str(Path(__file__).with_name("resolve_worker.py"))],
        input="\n".join(map(json.dumps, requests)),
        env=os.environ | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    yield from map(json.loads, done.stdout.splitlines())


def differences(sample: Sample, plan: ServingPlan, answer: dict[str, Any]) -> list[str]:
    """What the engine would use otherwise than the plan says. It says everything of families with a profile, and of others
    what it decides."""
    if "refused" in answer:
        return [f"the engine refuses: {answer['refused']}"]
    told = answer["fields"]
    actual = {name: told[name] for name in FIELD_SETTINGS}
    actual["mm_preprocess_cache_size_mb"] = told["mm_preprocess_cache_size_mb"] or 0
    actual["decode_attention_backend"] = told["decode_attention_backend"] or told["attention_backend"]
    actual["cuda_graph_max_bs_decode"] = answer["graph"]
    actual["SGLANG_VLM_CACHE_SIZE_MB"] = answer["env"]["SGLANG_VLM_CACHE_SIZE_MB"] or 100
    if told["mm_feature_transport"] == "cuda_ipc":
        actual["SGLANG_MM_FEATURE_CACHE_MB"] = answer["env"]["SGLANG_MM_FEATURE_CACHE_MB"] or 1024
    different = []
    for name, value in actual.items():
        setting = plan.setting(name)
        silent = setting is None or not (setting.applied or setting.expected is not None)
        if silent and sample.model not in PROFILED:
            continue
        if setting is None:
            different.append(f"{name}: the plan does not mention it, the engine uses {value}")
            continue
        said = setting.value if setting.applied else setting.expected
        if str(said) != str(value):
            what = "planned" if setting.applied else "expected"
            different.append(f"{name}: {what} {said!r}, the engine uses {value!r} ({setting.reason})")
    return different


@pytest.fixture(scope="module")
def resolutions(
    release_path: Any, models: dict[str, Path]
) -> dict[str, list[tuple[Sample, ServingPlan, dict[str, Any]]]]:
    """Release -> samples with their plans and the engine's answers. One process each for the older ones, two for the newest."""
    planned_for = {
        version: [(s, p) for s in samples(SEED, 4 * wanted, version) if (p := planned(s)) is not None][:wanted]
        for version, wanted in AGREEMENTS_WANTED.items()
    }

    def resolve(part: tuple[str, list[tuple[Sample, ServingPlan]]]) -> list[dict[str, Any]]:
        version, made = part
        return list(resolved(release_path(version), [request(s, p, models) for s, p in made]))

    half = AGREEMENTS_WANTED[newest()] // 2
    parts = [(version, made) for version, made in planned_for.items() if version != newest()]
    parts += [(newest(), planned_for[newest()][:half]), (newest(), planned_for[newest()][half:])]
    found: dict[str, list[tuple[Sample, ServingPlan, dict[str, Any]]]] = {version: [] for version in AGREEMENTS_WANTED}
    with ThreadPoolExecutor(WORKERS) as workers:
        for (version, made), answers in zip(parts, workers.map(resolve, parts), strict=True):
            found[version] += [(*pair, answer) for pair, answer in zip(made, answers, strict=True)]
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", AGREEMENTS_WANTED)
def test_the_engine_uses_what_is_planned_and_chooses_what_is_expected(version, resolutions):
    answered = resolutions[version]
    assert len(answered) == AGREEMENTS_WANTED[version]
    assert len({CONFIGS[sample.model]["architectures"][0] for sample, _, _ in answered}) >= FAMILIES_WANTED
    assert len({sample.product for sample, _, _ in answered}) >= GPUS_WANTED
    wrong = [
        f"{sample.model} on {sample.product} x {sample.nodes} nodes, {json.dumps(sample.spec)}\n    "
        + "\n    ".join(different)
        for sample, plan, answer in answered
        if (different := differences(sample, plan, answer))
    ]
    assert not wrong, f"{len(wrong)} of {len(answered)} plans differ from the engine:\n" + "\n".join(wrong[:20])
