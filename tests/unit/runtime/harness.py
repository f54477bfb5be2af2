"""A plan, and one run of the whole runtime beside an engine."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unit.runtime.forked import ForkedRuntime

from minicluster.ports import free_port
from vlm_api.plan import ExpectedHardware, PlanEngine, PlanHardware, PlanResources, PlanRuntime, ServiceRef, ServingPlan

STAND_IN = Path(__file__).with_name("stand_in.py")


def make_plan(**changes: Any) -> ServingPlan:
    """A plan for the stand-in; ``engine``, ``runtime``, ``hardware`` and ``settings`` replace single values."""
    engine: dict[str, Any] = {"version": "0.5.23", "image": "lmsysorg/sglang:v0.5.23", "args": []}
    runtime: dict[str, Any] = {
        "image": "vlm-operator",
        "served_model_name": "qwen3-vl",
        "startup_budget_seconds": 60,
        "drain_seconds": 20,
        "hardware": ExpectedHardware(device="cpu", devices=0),
    }
    return ServingPlan(
        service=ServiceRef(name="qwen3-vl", namespace="default"),
        hash="0123456789abcdef",
        engine=PlanEngine(**{**engine, **changes.get("engine", {})}),
        hardware=PlanHardware(**{"device": "cpu", **changes.get("hardware", {})}),
        resources=PlanResources(devices_per_pod=0, pods=1),
        settings=changes.get("settings", []),
        runtime=PlanRuntime(**{**runtime, **changes.get("runtime", {})}),
    )


class Container:
    """One run of the runtime, as the container's first process."""

    def __init__(
        self,
        folder: Path,
        plan: ServingPlan,
        *,
        program: Sequence[str] = (),
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        endpoint_delay: float = 1.0,
    ) -> None:
        """``program``: starts the runtime in a new Python; without it, a fork does."""
        self.port, self.engine_port = free_port(), free_port()
        self.termination_log = folder / "termination-log"
        self.log_path = folder / "log"
        plan_path = folder / "plan.json"
        plan_path.write_text(json.dumps(plan.to_api()), encoding="utf-8")
        argv = [
            "--plan", str(plan_path), "--port", str(self.port), "--engine-port", str(self.engine_port),
            "--termination-log", str(self.termination_log), "--endpoint-delay-seconds", str(endpoint_delay), *options,
        ]  # fmt: skip
        env = {**os.environ, **(env or {})}
        self.log_path.touch()
        self.process: subprocess.Popen[bytes] | ForkedRuntime
        if not program:
            self.process = ForkedRuntime(argv, env, str(self.log_path))
            return
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, *argv], env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def get(self, path: str, port: int | None = None) -> tuple[int, str]:
        """Status and body of the runtime's answer; (0, why) where it does not listen."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def report(self) -> dict[str, Any]:
        """The answer of /report."""
        status, body = self.get("/report")
        assert status == 200, body
        return dict(json.loads(body))

    def wait_for(self, holds: Callable[[], bool], what: str, seconds: float = 30) -> None:
        """Waits until something holds, and fails with the log where it does not."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not {what} after {seconds} s:\n{self.log()}"
            assert self.process.poll() is None, f"not {what}, ended with {self.process.returncode}:\n{self.log()}"
            time.sleep(0.05)

    def wait_ready(self, seconds: float = 30) -> None:
        """Waits until requests may come."""
        self.wait_for(lambda: self.get("/readyz")[0] == 200, "ready", seconds)

    def wait_exit(self, seconds: float = 30) -> int:
        """The exit code, once there is one."""
        return self.process.wait(seconds)

    def terminate(self) -> None:
        """What kubelet does first."""
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Ends what is left of it at once."""
        if self.process.poll() is None:
            self.terminate()
            self.terminate()
            self.process.wait(20)

    def log(self) -> str:
        """Everything that the container wrote."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def failure(self) -> dict[str, str]:
        """The termination message."""
        return dict(json.loads(self.termination_log.read_text(encoding="utf-8")))
