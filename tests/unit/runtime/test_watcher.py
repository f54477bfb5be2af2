"""From the engine's start to readiness, and what takes a pod out of service. Hangs in detail: ``test_hang``."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.runtime.harness import make_plan

from vlm_api.report import Failure
from vlm_runtime.probe.stall import StallLimits
from vlm_runtime.probe.watcher import REFUSALS_UNTIL_FAILURE, Pace, Watcher
from vlm_runtime.report.state import RuntimeState
from vlm_runtime.sglang.client import Answer, EngineUnreachable
from vlm_runtime.sglang.processes import WorkerProcess, is_alive, worker_processes

NO_PID = 1 << 30
PACE = Pace(start_poll=0.01, retry=0.01, serving_poll=0.01, worker_grace=0.2, count_images=0.02)


class Engine:
    """Answers what the test wants."""

    poll_seconds = 60.0
    has_ready = True

    def __init__(self) -> None:
        self.alive = True
        self.answers_a_token = False
        self.tokens_requested = 0
        self.healthy: bool | None = True
        self.serving: list[Answer | EngineUnreachable] = []
        self.chats: list[Answer] = []
        self.images: tuple[int, int] | None = None
        self.infos: list[object] = []

    def is_serving(self) -> Answer:
        answer = self.serving.pop(0) if self.serving else Answer(200, b"")
        if isinstance(answer, EngineUnreachable):
            raise answer
        return answer

    def chat(self, model: str, content: object, *, timeout_seconds: float) -> Answer:
        return self.chats.pop(0) if self.chats else Answer(200, b'{"choices": [1]}')

    def understands_images(self) -> bool | None:
        return None

    def server_info(self) -> dict[str, object]:
        info = self.infos.pop(0) if self.infos else {"version": "0.5.23"}
        if isinstance(info, Exception):
            raise info
        return info  # type: ignore[return-value]

    def is_alive(self, timeout_seconds: float) -> bool:
        return self.alive

    def computes(self) -> bool:
        self.tokens_requested += 1
        return self.answers_a_token

    def calls_itself_healthy(self) -> bool | None:
        return self.healthy

    def metrics(self) -> bytes:
        if self.images is None:
            raise EngineUnreachable("/metrics/: TimeoutError")
        return b"vlmserve_images_received_total %d.0\nvlmserve_images_repeated_total %d.0\n" % self.images


class Run:
    """A watcher at work."""

    def __init__(self, engine: Engine, pid: int = NO_PID, idle: float = 600) -> None:
        self.state = RuntimeState("abc", 60)
        self.failures: list[Failure] = []
        self.logged: list[str] = []
        watcher = Watcher(
            make_plan(),
            engine,  # type: ignore[arg-type]
            self.state,
            is_leader=True,
            log=self.logged.append,
            on_failure=self.failures.append,
            pace=replace(PACE, stall_limits=StallLimits(idle, 2 * idle)),
        )
        threading.Thread(target=watcher.run, args=(pid,), daemon=True).start()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, self.logged
            time.sleep(0.005)

    def wait_ready(self) -> None:
        self.wait_for(lambda: self.state.readiness_probe().ok)

    def failure(self) -> Failure:
        self.wait_for(lambda: bool(self.failures))
        return self.failures[0]


@pytest.fixture
def process() -> Iterator[int]:
    """An engine's main process with one worker process, whose death it does not notice."""
    shell = "exec -a sglang::scheduler sleep 60 & exec sleep 60"
    with subprocess.Popen(["bash", "-c", shell], start_new_session=True) as main:
        deadline = time.monotonic() + 30
        while not worker_processes(main.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield main.pid
        os.killpg(main.pid, signal.SIGKILL)


def test_a_process_that_cannot_be_read_counts_as_alive(tmp_path: Path) -> None:
    """Otherwise a lack of file descriptors in the runtime would end an engine that serves."""
    (tmp_path / "7").mkdir()
    assert is_alive(WorkerProcess(7, 1, "sglang::scheduler"), tmp_path)
    assert not is_alive(WorkerProcess(8, 1, "sglang::scheduler"), tmp_path)


def test_an_engine_that_lives_on_without_its_scheduler_fails_after_the_grace(process: int) -> None:
    (worker,) = worker_processes(process)
    assert worker.title == "sglang::scheduler"
    run = Run(Engine(), process)
    run.wait_ready()
    killed = time.monotonic()
    os.kill(worker.pid, signal.SIGKILL)  # a zombie from now on
    assert run.failure().reason == "SchedulerDied"
    assert "sglang::scheduler" in run.failure().message
    assert time.monotonic() - killed >= PACE.worker_grace


def test_a_silent_engine_gets_no_requests_and_then_counts_as_hung(process: int) -> None:
    engine = Engine()
    run = Run(engine, process, idle=1.0)
    run.wait_ready()
    engine.alive = False
    run.wait_for(lambda: not run.state.readiness_probe().ok)
    assert run.failure().reason == "EngineHung"
    assert any("not serving: the engine's schedulers have not answered" in line for line in run.logged)


def test_two_missed_answers_do_not_take_a_pod_out_of_service() -> None:
    engine = Engine()
    run = Run(engine)
    run.wait_ready()
    engine.serving = [EngineUnreachable("/ready: TimeoutError"), Answer(503, b"busy"), Answer(200, b"")]
    run.wait_for(lambda: not engine.serving)
    assert run.state.readiness_probe().ok
    assert not any("not serving" in line for line in run.logged)


def test_a_paused_engine_gets_no_requests_until_it_resumes() -> None:
    engine = Engine()
    run = Run(engine)
    run.wait_ready()
    engine.serving = [Answer(503, b"paused")] * 100
    run.wait_for(lambda: not run.state.readiness_probe().ok)
    assert "503: paused" in run.state.readiness_probe().reason
    assert run.state.liveness_probe().ok
    run.wait_ready()
    run.wait_for(lambda: "serving again" in run.logged)
    assert run.failures == []
    assert engine.tokens_requested == 0  # none would come


@pytest.mark.parametrize("healthy", [False, None], ids=["0.5.23", "before"])
def test_an_unhealthy_engine_is_healed_at_most_once_a_minute(healthy: bool | None) -> None:
    engine = Engine()
    run = Run(engine)
    run.wait_ready()
    engine.healthy, engine.answers_a_token = healthy, True
    engine.serving = [Answer(503, b"")] * 30
    run.wait_for(lambda: not engine.serving)
    assert engine.tokens_requested == 1
    assert any("it answers again" in line for line in run.logged)
    assert run.failures == []


def test_images_are_counted_from_readiness_on() -> None:
    engine = Engine()
    engine.images = (2, 1)  # the engine's warm-up, and the runtime's own image
    run = Run(engine)
    run.wait_for(lambda: run.state.report().images is not None)
    engine.images = (12, 4)
    run.wait_for(lambda: (counts := run.state.report().images) is not None and counts.received > 0)
    counts = run.state.report().images
    assert counts is not None
    assert (counts.received, counts.repeated) == (10, 3)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no images here", "ConfigurationError"),
        (b"Model only supports text input; received unsupported content type 'image_url'.", "ImageNotSeen"),
    ],
)
def test_an_engine_that_refuses_the_image_fails(body: bytes, reason: str) -> None:
    engine = Engine()
    engine.chats = [Answer(503, b"busy"), *[Answer(400, body)] * REFUSALS_UNTIL_FAILURE]
    run = Run(engine)
    assert run.failure().reason == reason
    assert "64 x 64 pixels with 400" in run.failure().message


def test_an_engine_that_ignores_the_image_fails() -> None:
    engine = Engine()
    engine.chats = [Answer(200, b'{"choices": [1], "usage": {"prompt_tokens": %d}}' % tokens) for tokens in (15, 14)]
    run = Run(engine)
    assert run.failure().reason == "ImageNotSeen"
    assert not run.state.was_ready


def test_an_internal_error_does_not_leave_an_engine_unwatched() -> None:
    engine = Engine()
    engine.server_info = None  # type: ignore[method-assign, assignment]
    run = Run(engine)
    run.wait_for(lambda: any("TypeError" in line for line in run.logged))
    del engine.server_info
    run.wait_ready()
    assert run.failures == []


def test_a_pod_is_ready_only_after_its_settings_were_compared() -> None:
    engine = Engine()
    engine.infos = [EngineUnreachable("/server_info: TimeoutError"), ValueError("/server_info answered 503")]
    run = Run(engine)
    run.wait_for(lambda: any(line.startswith("ready after") for line in run.logged))
    assert run.state.report().settings_read
    assert "the engine did not report its settings: /server_info answered 503" in run.logged


def test_an_engine_that_cannot_report_its_settings_serves_and_is_asked_again() -> None:
    engine = Engine()
    engine.infos = [EngineUnreachable("/server_info: TimeoutError"), ["no", "object"], ValueError("x"), ValueError("y")]
    engine.images = (2, 1)
    run = Run(engine)
    run.wait_ready()
    run.wait_for(lambda: run.state.report().settings_read)
    assert any("cannot be read: " in line for line in run.logged)
    assert run.failures == []
