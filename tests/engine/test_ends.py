"""How the unchanged SGLang ends when something is wrong, and what the pod says then."""

import os
import signal
import time
from pathlib import Path

import pytest
from engine.conftest import ENV, KEY, Start

from vlm_runtime.sglang.processes import children, worker_processes

pytestmark = pytest.mark.timeout(600)


def test_a_flag_that_the_version_does_not_know(engine: Start) -> None:
    run = engine(["--keep-mm-feature-on-device"])
    assert run.wait_exit(120) == 1
    assert run.failure()["reason"] == "BadArgument"
    assert "--keep-mm-feature-on-device" in run.failure()["message"]


def test_a_model_that_is_not_there(engine: Start) -> None:
    run = engine(engine={"args": ["--model-path", "/models/nothing-here", "--device", "cpu"], "env": ENV})
    assert run.wait_exit(120) == 1
    assert run.failure()["reason"] == "ModelNotFound"
    assert "/models/nothing-here" in run.failure()["message"]


def test_sigterm_during_the_load_ends_at_once(engine: Start) -> None:
    run = engine()
    run.wait_for(lambda: "server_args=" in run.log(), "loading", seconds=120)
    began = time.monotonic()
    run.terminate()
    assert run.wait_exit(30) == 0
    assert time.monotonic() - began < 6
    assert not run.termination_log.exists()


def test_memory_that_does_not_suffice_for_a_kv_cache(engine: Start) -> None:
    run = engine(["--mem-fraction-static", "0.0001"])
    assert run.wait_exit(400) == 1
    assert run.failure()["reason"] == "OutOfHostMemory"
    assert "KV cache" in run.failure()["message"]


def test_a_killed_scheduler_ends_the_pod_with_that_reason(engine: Start) -> None:
    run = engine()
    run.wait_ready(450)
    (main,) = children(run.process.pid)
    everything = worker_processes(main)
    (scheduler,) = (worker for worker in everything if "scheduler" in worker.title)
    killed = time.monotonic()
    os.kill(scheduler.pid, signal.SIGKILL)
    assert run.wait_exit(60) == 1
    assert time.monotonic() - killed < 15
    assert run.failure()["reason"] == "SchedulerDied"
    assert KEY not in run.termination_log.read_text()
    assert [worker.pid for worker in everything if Path(f"/proc/{worker.pid}/cmdline").exists()] == []
