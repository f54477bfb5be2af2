"""What ends a start before there is an engine."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from unit.runtime.harness import make_plan

from minicluster.ports import free_port
from vlm_api.report import Failure
from vlm_runtime.__main__ import options
from vlm_runtime.redact import Redactor
from vlm_runtime.report.log import Log
from vlm_runtime.supervise.run import run


class Sink:
    def write(self, data: memoryview, /) -> int:
        return len(data)


def failure_of(folder: Path, plan: object, *more: str) -> Failure:
    (folder / "plan.json").write_text(json.dumps(plan))
    failure = run(options(["--plan", str(folder / "plan.json"), *more]), SimpleQueue(), Log(Sink(), Redactor()))
    assert failure is not None
    return failure


def test_a_missing_plan(tmp_path: Path) -> None:
    failure = run(options(["--plan", str(tmp_path / "plan.json")]), SimpleQueue(), Log(Sink(), Redactor()))
    assert failure is not None
    assert failure.reason == "BadPlan"
    assert str(tmp_path / "plan.json") in failure.message


@pytest.mark.parametrize(
    ("plan", "env", "reason", "named"),
    [
        ({"kind": "Pod"}, {}, "BadPlan", "is not a ServingPlan"),
        (make_plan(runtime={"nodes": 2}).to_api(), {}, "BadPlan", "LWS_GROUP_SIZE"),
        (make_plan().to_api(), {"VLMSERVE_API_KEY": "two words"}, "BadApiKey", "VLMSERVE_API_KEY"),
        (make_plan().to_api(), {"HF_TOKEN": "\n"}, "BadToken", "HF_TOKEN is empty or blank"),
        (make_plan().to_api(), {"VLMSERVE_API_KEY": " \n"}, "BadApiKey", "VLMSERVE_API_KEY is empty or blank"),
    ],
    ids=[
        "another document",
        "a group without its variables",
        "a key that no client can send",
        "a blank token",
        "a blank key",
    ],
)
def test_a_bad_plan_or_environment_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Any, env: dict[str, str], reason: str, named: str
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    failure = failure_of(tmp_path, plan)
    assert failure.reason == reason
    assert named in failure.message


def test_a_taken_port_of_the_runtime(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("", port)):
        failure = failure_of(tmp_path, make_plan().to_api(), "--port", str(port))
    assert failure.reason == "PortInUse"
    assert f"cannot listen on port {port}" in failure.message
