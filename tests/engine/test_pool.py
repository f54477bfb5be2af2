"""The image pool's metrics on SGLang's real classes. The machine has no GPU: its memory stands in for one's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from engine.conftest import ENGINE, PYTHON

WORKER = Path(__file__).with_name("pool_worker.py")
MIB = 1 << 20
# Room for 4,096 leases with one consumer.
CONTROL_BYTES = 4096 * 2 * 4


@pytest.fixture(scope="module")
def answer(library: Path) -> dict[str, Any]:
    """What the worker printed."""
    env = {**os.environ, "PYTHONPATH": f"{library / 'lib'}:{ENGINE}"}
    run = subprocess.run([PYTHON, str(WORKER)], env=env, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout.splitlines()[-1]))


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
