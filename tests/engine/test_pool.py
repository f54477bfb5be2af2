"""The image pool's metrics on SGLang's real classes. The machine has no GPU: its memory stands in for one's."""

import ast
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engine.conftest import ENGINE, PYTHON
from unit.runtime.harness import make_plan
from unit.runtime.test_feature_pool import ON_CPU, POOL_FULL, RESERVED, SHARED_MEMORY_FULL

from vlm_api.report import Fallback, FeaturePool
from vlm_runtime.sglang.feature_pool import FeaturePoolMonitor

WORKER = Path(__file__).with_name("pool_worker.py")
MIB = 1 << 20
# Room for 4,096 leases with one consumer.
CONTROL_BYTES = 4096 * 2 * 4


@pytest.fixture(scope="module")
def worker(library: Path) -> subprocess.CompletedProcess[str]:
    """The worker's end, with what it printed and what the engine logged."""
    env = {**os.environ, "PYTHONPATH": f"{library / 'lib'}:{ENGINE}"}
    run = subprocess.run([PYTHON, str(WORKER)], env=env, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    return run


@pytest.fixture
def answer(worker: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What the worker printed."""
    return dict(json.loads(worker.stdout.splitlines()[-1]))


def test_a_stand_in_for_a_gpus_pool_of_the_real_class_is_told_truly(answer: dict[str, Any]) -> None:
    size = 16 * MIB - CONTROL_BYTES
    assert answer["told"] == {
        "empty": {"size_bytes": size, "used_bytes": 0, "peak_used_bytes": 0, "leases": 0, "fallbacks_total": 0},
        "two of three found room": {
            "size_bytes": size,
            "used_bytes": 12 * MIB,
            "peak_used_bytes": 12 * MIB,
            "leases": 2,
            "fallbacks_total": 1,
        },
        "one left": {
            "size_bytes": size,
            "used_bytes": 6 * MIB,
            "peak_used_bytes": 12 * MIB,
            "leases": 1,
            "fallbacks_total": 1,
        },
    }


def test_the_engine_gets_the_same_answers_from_its_pool_as_without_us(answer: dict[str, Any]) -> None:
    assert answer["third"] == "None"


def test_the_size_of_features_is_read_from_the_real_proxy(answer: dict[str, Any]) -> None:
    assert answer["feature_bytes"] == 6 * MIB


def test_the_line_that_the_real_class_logs_of_a_full_pool_is_understood(
    worker: subprocess.CompletedProcess[str],
) -> None:
    watch = FeaturePoolMonitor(make_plan())
    assert [watch.read_line(line) for line in worker.stderr.splitlines()].count(True) == 1
    assert watch.state == FeaturePool(size_bytes=16 * MIB, fallbacks=1, logged=[Fallback.POOL_FULL])


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (RESERVED, "multimodal/processors/base_processor.py"),
        (POOL_FULL, "multimodal/transport/cuda_ipc.py"),
        (SHARED_MEMORY_FULL, "managers/mm_utils.py"),
        (ON_CPU, "multimodal/processors/base_processor.py"),
    ],
)
def test_every_line_that_the_runtime_looks_for_is_one_that_the_engines_source_makes(line: str, source: str) -> None:
    said = line.partition("] ")[2]
    formats = formats_in((ENGINE / "sglang" / "srt" / source).read_text(encoding="utf-8"))
    assert any(form.fullmatch(said) for form in formats), said


def formats_in(source: str) -> list[re.Pattern[str]]:
    """What the texts of a source can become: those of ``logging`` with %-fields, and f-strings."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in node.values]  # type: ignore[arg-type]
            found.append(re.compile("".join(parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 20:
            found.append(re.compile(re.sub(r"%(?:\\\.\d)?[sdf]", ".*", re.escape(node.value))))
    return found
