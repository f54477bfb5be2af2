"""An engine that runs on without one of its workers, one that is busy, and one that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.runtime.harness import make_plan

from vlm_api.report import Failure
from vlm_runtime.client import Answer, EngineUnreachable
from vlm_runtime.hang import Patience
from vlm_runtime.processes import Worker, is_alive, workers
from vlm_runtime.state import RuntimeState
from vlm_runtime.watcher import Pace, Watcher

PACE = Pace(
    start_poll=0.01, serving_poll=0.02, worker_grace=0.3, count_images=0.1, patience=Patience(idle=0.6, busy=1.8)
)


class Engine:
    """Answers what the test wants."""

    poll_seconds = 60.0
    has_ready = True

    def __init__(self) -> None:
        self.pulse = True
        self.question_is_answered = False
        self.healthy: bool | None = True
        self.questions = 0
        self.in_flight: int | None = None
        self.tokens = 0
        self.serving: list[Answer | EngineUnreachable] = []
        self.images: tuple[int, int] | None = None
        self.infos: list[object] = []

    def is_serving(self) -> Answer:
        answer = self.serving.pop(0) if self.serving else Answer(200, b"")
        if isinstance(answer, EngineUnreachable):
            raise answer
        return answer

    def ask_about_image(self, model: str, width: int, height: int, *, timeout_seconds: float) -> Answer:
        return Answer(200, b'{"choices": [1]}')

    def server_info(self) -> dict[str, object]:
        info = self.infos.pop(0) if self.infos else {"version": "0.5.23"}
        if isinstance(info, Exception):
            raise info
        return info  # type: ignore[return-value]

    def has_pulse(self, timeout_seconds: float) -> bool:
        return self.pulse

    def computes(self) -> bool:
        self.questions += 1
        return self.question_is_answered

    def calls_itself_healthy(self) -> bool | None:
        return self.healthy

    def metrics(self) -> bytes:
        if self.in_flight is not None:
            return b"sglang:num_running_reqs %d\nsglang:realtime_tokens_total %d\n" % (self.in_flight, self.tokens)
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
        os.killpg(main.pid, signal.SIGKILL)


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


def test_a_process_that_cannot_be_looked_at_counts_as_alive(tmp_path: Path) -> None:
    """Else a lack of files on the runtime's side would end an engine that serves."""
    (tmp_path / "7").mkdir()
    assert is_alive(Worker(7, 1, "sglang::scheduler"), tmp_path)
    assert not is_alive(Worker(8, 1, "sglang::scheduler"), tmp_path)


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


def worker_of(process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + 5
    while not (found := workers(process.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found[0].pid


def test_a_silent_engine_takes_no_requests_and_is_ended_with_the_time_it_had(process: subprocess.Popen[bytes]) -> None:
    worker_of(process)
    engine = Engine()
    run = Run(engine, process.pid)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    silent = time.monotonic()
    engine.pulse = False
    run.wait_for(lambda: not run.state.readiness_probe().ok)
    assert any("not serving: the engine's schedulers have answered nothing" in line for line in run.said)
    run.wait_for(lambda: bool(run.failures))
    assert time.monotonic() - silent >= 0.6
    assert run.failures[0].reason == "EngineHung"
    assert "used 0.0 s of CPU" in run.failures[0].message


def test_a_server_that_hangs_is_told_from_its_schedulers(process: subprocess.Popen[bytes]) -> None:
    worker_of(process)
    engine = Engine()
    run = Run(engine, process.pid)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    engine.pulse, engine.question_is_answered = False, True  # which is not asked: it would wait for the server
    engine.serving = [EngineUnreachable("/ready: TimeoutError")] * 10_000
    run.wait_for(lambda: bool(run.failures))
    assert run.failures[0].reason == "EngineHung"
    assert "The engine's server has answered nothing" in run.failures[0].message


def test_an_engine_that_computes_is_given_the_time_of_a_whole_start(process: subprocess.Popen[bytes]) -> None:
    shell = "exec -a sglang::scheduler sh -c 'while :; do :; done' & wait"
    with subprocess.Popen(["bash", "-c", shell], start_new_session=True) as busy:
        try:
            worker = worker_of(busy)
            engine = Engine()
            run = Run(engine, busy.pid)
            run.wait_for(lambda: run.state.readiness_probe().ok)
            silent = time.monotonic()
            engine.pulse = False
            run.wait_for(lambda: bool(run.failures))
            assert time.monotonic() - silent >= 1.8
        finally:
            os.kill(worker, signal.SIGKILL)


def test_requests_that_no_token_comes_for_are_a_hang_though_the_engine_answers(
    process: subprocess.Popen[bytes],
) -> None:
    worker_of(process)
    engine = Engine()
    engine.in_flight = 3
    run = Run(engine, process.pid)
    run.wait_for(lambda: bool(run.failures))
    assert run.failures[0].reason == "EngineHung"
    assert "Requests run or wait" in run.failures[0].message


def test_requests_that_tokens_come_for_are_none(process: subprocess.Popen[bytes]) -> None:
    worker_of(process)
    engine = Engine()
    engine.in_flight = 3
    run = Run(engine, process.pid)
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        engine.tokens += 1
        time.sleep(0.05)
    assert run.failures == []


def test_a_question_that_is_answered_after_all_clears_the_engine(process: subprocess.Popen[bytes]) -> None:
    """A gauge that stands still with a request that is long gone."""
    worker_of(process)
    engine = Engine()
    engine.in_flight, engine.question_is_answered = 1, True
    run = Run(engine, process.pid)
    run.wait_for(lambda: any("no hang" in line for line in run.said))
    assert run.failures == []
    assert run.state.readiness_probe().ok


def test_a_paused_engine_is_left_alone(process: subprocess.Popen[bytes]) -> None:
    worker_of(process)
    engine = Engine()
    run = Run(engine, process.pid)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    engine.in_flight = 3
    engine.serving = [Answer(503, b"")] * 1000
    time.sleep(1.5)
    assert run.failures == []
    assert engine.questions == 0  # which nothing would answer


@pytest.mark.parametrize("told", [False, None], ids=["0.5.23", "before"])
def test_an_unhealthy_engine_is_asked_to_look_again_and_not_more_than_once_a_minute(
    process: subprocess.Popen[bytes], told: bool | None
) -> None:
    worker_of(process)
    engine = Engine()
    run = Run(engine, process.pid)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    engine.healthy, engine.question_is_answered = told, True
    engine.serving = [Answer(503, b"")] * 1000
    run.wait_for(lambda: any("it answers again" in line for line in run.said))
    time.sleep(1.0)  # several pulses
    assert engine.questions == 1
    assert run.failures == []


def test_an_unhealthy_engine_that_no_token_comes_from_is_ended(process: subprocess.Popen[bytes]) -> None:
    worker_of(process)
    engine = Engine()
    run = Run(engine, process.pid)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    engine.healthy, engine.in_flight = False, 3
    engine.serving = [Answer(503, b"")] * 1000
    run.wait_for(lambda: bool(run.failures))
    assert run.failures[0].reason == "EngineHung"


def test_a_fault_of_the_runtime_leaves_no_engine_unwatched(process: subprocess.Popen[bytes]) -> None:
    worker_of(process)
    engine = Engine()
    engine.server_info = None  # type: ignore[method-assign, assignment]
    run = Run(engine, process.pid)
    run.wait_for(lambda: any("TypeError" in line for line in run.said))
    del engine.server_info
    run.wait_for(lambda: run.state.readiness_probe().ok)
    assert run.failures == []


def test_a_pod_is_ready_only_after_its_engine_was_asked_what_it_uses() -> None:
    engine = Engine()
    engine.infos = [EngineUnreachable("/server_info: TimeoutError"), ValueError("/server_info answered 503")]
    run = Run(engine, 1 << 30)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    assert run.state.report().asked
    assert run.said.index("the engine did not say what it uses: /server_info answered 503") < next(
        number for number, line in enumerate(run.said) if line.startswith("ready after")
    )


def test_an_engine_that_cannot_say_what_it_uses_serves_all_the_same_and_is_asked_again() -> None:
    engine = Engine()
    engine.infos = [EngineUnreachable("/server_info: TimeoutError"), ["no", "object"], ValueError("x"), ValueError("y")]
    engine.images = (2, 1)
    run = Run(engine, 1 << 30)
    run.wait_for(lambda: run.state.readiness_probe().ok)
    run.wait_for(lambda: run.state.report().asked)
    assert any("cannot be read: " in line for line in run.said)
    assert run.failures == []
