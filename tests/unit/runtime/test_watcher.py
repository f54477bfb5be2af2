"""An engine that runs on without one of its workers, and one that is busy."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from unit.runtime.harness import make_plan

from vlm_api.report import Failure
from vlm_runtime.client import Answer, EngineUnreachable
from vlm_runtime.processes import is_alive, workers
from vlm_runtime.state import RuntimeState
from vlm_runtime.watcher import Pace, Watcher

PACE = Pace(start_poll=0.01, serving_poll=0.02, worker_grace=0.3, count_images=0.1)


class Engine:
    """Answers what the test wants."""

    poll_seconds = 60.0

    def __init__(self) -> None:
        self.serving: list[Answer | EngineUnreachable] = []
        self.images: tuple[int, int] | None = None

    def is_serving(self) -> Answer:
        answer = self.serving.pop(0) if self.serving else Answer(200, b"")
        if isinstance(answer, EngineUnreachable):
            raise answer
        return answer

    def ask_about_image(self, model: str, width: int, height: int, *, timeout_seconds: float) -> Answer:
        return Answer(200, b'{"choices": [1]}')

    def server_info(self) -> dict[str, object]:
        return {"version": "0.5.23"}

    def metrics(self) -> bytes:
        if self.images is None:
            raise EngineUnreachable("/metrics/: TimeoutError")
        return b"vlmserve_images_received_total %d.0\nvlmserve_images_repeated_total %d.0\n" % self.images


class Run:
    """A watcher at work."""

    def __init__(self, engine: Engine, pid: int) -> None:
        self.state = RuntimeState("abc", 60)
        self.failures: list[Failure] = []
        self.said: list[str] = []
        watcher = Watcher(
            make_plan(),
            engine,
            self.state,
            is_head=True,
            say=self.said.append,
            on_failure=self.failures.append,
            pace=PACE,
        )  # type: ignore[arg-type]
        threading.Thread(target=watcher.run, args=(pid,), daemon=True).start()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """An engine's main process with one worker, which does not notice when that dies."""
    shell = "exec -a sglang::scheduler sleep 60 & echo $!; exec sleep 60"
    with subprocess.Popen(["bash", "-c", shell], stdout=subprocess.PIPE, start_new_session=True) as main:
        assert main.stdout is not None
        main.stdout.readline()
        yield main
        main.kill()


def test_workers_are_found_by_the_titles_that_the_engine_gives_them(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 5
    while not (found := workers(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    (worker,) = found
    assert worker.title == "sglang::scheduler"
    assert is_alive(worker)
    subprocess.run(["kill", "-9", str(worker.pid)], check=True)
    while is_alive(worker):  # a zombie: its parent never looks
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_engine_that_lives_on_without_its_scheduler_is_lost_after_the_grace(
    process: subprocess.Popen[bytes],
) -> None:
    deadline = time.monotonic() + 5
    while not (found := workers(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    run = Run(Engine(), process.pid)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    time.sleep(0.2)
    killed = time.monotonic()
    subprocess.run(["kill", "-9", str(found[0].pid)], check=True)
    run.wait_for(lambda: bool(run.failures))
    assert time.monotonic() - killed >= PACE.worker_grace
    assert run.failures[0].reason == "SchedulerDied"
    assert "sglang::scheduler" in run.failures[0].message


def test_one_missed_answer_takes_no_pod_out_of_service() -> None:
    engine = Engine()
    run = Run(engine, 1 << 30)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    engine.serving = [EngineUnreachable("/ready: TimeoutError"), Answer(503, b"busy")]
    run.wait_for(lambda: not engine.serving)
    time.sleep(0.1)
    assert run.state.readiness_probe().ok
    assert not any("not serving" in line for line in run.said)


def test_an_engine_that_keeps_silent_takes_no_requests_until_it_answers_again() -> None:
    engine = Engine()
    run = Run(engine, 1 << 30)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    engine.serving = [Answer(503, b"paused")] * 20
    run.wait_for(lambda: not run.state.readiness_probe().ok)
    assert "503: paused" in run.state.readiness_probe().reason
    assert run.state.liveness_probe().ok
    run.wait_for(lambda: run.state.readiness_probe().ok)
    assert "serving again" in run.said
    assert run.failures == []


def test_images_are_counted_from_the_moment_that_the_pod_serves() -> None:
    engine = Engine()
    engine.images = (2, 1)  # the engine's warm-up, and the runtime's own question
    run = Run(engine, 1 << 30)
    run.wait_for(lambda: run.state.report().images is not None)
    engine.images = (12, 4)
    run.wait_for(lambda: (seen := run.state.report().images) is not None and seen.received > 0)
    seen = run.state.report().images
    assert seen is not None
    assert (seen.received, seen.repeated) == (10, 3)


def test_an_engine_that_does_not_tell_its_metrics_serves_on() -> None:
    run = Run(Engine(), 1 << 30)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    time.sleep(0.3)
    assert run.state.readiness_probe().ok
    assert run.state.report().images is None
