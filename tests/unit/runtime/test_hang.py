"""When a live engine counts as hung: not while it answers, produces or computes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.runtime.harness import make_plan

from vlm_runtime.probe import hang
from vlm_runtime.probe.hang import HangDetector
from vlm_runtime.probe.stall import Observation, StallLimits, StallTimer, stall_limits
from vlm_runtime.sglang.client import Answer, EngineUnreachable
from vlm_runtime.sglang.engine_metrics import Progress
from vlm_runtime.sglang.processes import WorkerProcess

BUSY, IDLE = Progress(computed=10, in_flight=2), Progress(computed=10, in_flight=0)


@pytest.mark.parametrize(
    ("args", "drain", "start", "idle", "busy"),
    [
        ([], 10, 60, 120, 330),
        ([], 900, 60, 900, 900),
        ([], 300, 1800, 300, 1800),
        (["--watchdog-timeout", "3600"], 10, 600, 120, 3630),
    ],
    ids=["short requests", "long requests", "a large model", "a slow engine"],
)
def test_the_limits_cover_the_longest_request_a_start_and_the_engines_own_watchdog(
    args: list[str], drain: int, start: int, idle: float, busy: float
) -> None:
    plan = make_plan(engine={"args": args}, runtime={"drain_seconds": drain, "startup_budget_seconds": start})
    limits = stall_limits(plan)
    assert (limits.idle, limits.busy, limits.unready) == (idle, busy, 60)


@pytest.mark.parametrize(
    ("observations", "stalled", "unanswered"),
    [
        ([Observation(0, True, progress=IDLE), Observation(15, True)], 0, 0),
        ([Observation(0, True), Observation(15, False), Observation(30, False)], 115, 115),
        ([Observation(15 * n, False, progress=Progress(n, 1)) for n in range(5)], 0, 0),
        ([Observation(0, True, progress=BUSY), Observation(15, True), Observation(30, True, progress=BUSY)], 130, 0),
        ([Observation(0, True, progress=BUSY), Observation(15, True, excused=True)], 0, 0),
        ([Observation(0, True), Observation(15, True)], 0, 0),
    ],
    ids=["idle", "silent", "tokens without answers", "answers without tokens", "paused", "no metrics"],
)
def test_the_stall_counts_from_the_first_observation_without_a_move(
    observations: list[Observation], stalled: float, unanswered: float
) -> None:
    timer = StallTimer()
    for observation in observations:
        timer.add(observation)
    now = observations[-1].at + 100
    assert (timer.stalled_seconds(now), timer.unanswered_seconds(now)) == (stalled, unanswered)


DRAWN = st.lists(st.tuples(st.booleans(), st.booleans(), st.none() | st.integers(0, 3), st.integers(0, 2)), min_size=1)


@settings(max_examples=50)
@given(DRAWN)
def test_no_stall_is_longer_than_the_time_since_the_last_sign_of_life(
    drawn: list[tuple[bool, bool, int | None, int]],
) -> None:
    timer, last_sign = StallTimer(), -15.0
    for number, (answered, excused, computed, in_flight) in enumerate(drawn):
        at = 15.0 * number
        timer.add(Observation(at, answered, excused, None if computed is None else Progress(computed, in_flight)))
        if excused or (answered and computed is not None and in_flight == 0):
            last_sign = at
        assert timer.stalled_seconds(at) <= at - last_sign
        assert timer.unanswered_seconds(at) <= timer.stalled_seconds(at)


SERVES, REFUSES = Answer(200, b""), Answer(503, b"")


class World:
    """An engine, its processes and a clock, checked every 15 s with limits of 120 s and 330 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.cpu = 0.0
        self.cpu_share = 0.0
        self.stopped = False
        self.logged: list[str] = []
        self.has_ready = True
        self.alive = True
        self.token = False
        self.exposition: bytes | None = None
        monkeypatch.setattr(hang, "cpu_seconds", lambda pids, *, with_descendants: self.cpu)
        monkeypatch.setattr(hang, "is_stopped", lambda pid: self.stopped)
        worker = WorkerProcess(2, 0, "sglang::scheduler")
        self.detector = HangDetector(
            self,  # type: ignore[arg-type]
            StallLimits(idle=120, busy=330),
            1,
            [worker],
            self.logged.append,
            clock=lambda: self.now,
        )

    def is_alive(self, timeout_seconds: float) -> bool:
        self.now += 0.001  # an answer takes time
        return self.alive

    def computes(self) -> bool:
        return self.token

    def metrics(self) -> bytes:
        if self.exposition is None:
            raise EngineUnreachable("/metrics/: TimeoutError")
        return self.exposition

    def hang_after(
        self, serving: Answer | None = SERVES, progress: Progress | None = None, *, is_unhealthy: bool = False
    ) -> tuple[float, str] | None:
        """When it counts as hung, in seconds, and why; None if not within 10 minutes."""
        for _ in range(40):
            problem = self.detector.check(serving, progress, is_unhealthy=is_unhealthy)
            if problem is not None:
                return round(self.now), problem
            self.now += 15
            self.cpu += 15 * self.cpu_share
            assert self.detector.is_due()
        return None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def hang_of(found: tuple[float, str] | None) -> tuple[float, str]:
    assert found is not None
    return found


def test_a_silent_idle_engine_hangs_and_is_unready_before(world: World) -> None:
    world.alive = False
    seconds, problem = hang_of(world.hang_after())
    assert seconds == 120
    assert "schedulers have not answered or produced a token for 120 s; they used 0.0 s of CPU" in problem
    assert world.detector.unready_reason() == "the engine's schedulers have not answered for 120 s"


def test_a_busy_engine_gets_the_time_of_a_start_unless_a_signal_stopped_it(world: World) -> None:
    world.alive, world.cpu_share = False, 1.0
    assert hang_of(world.hang_after())[0] == 330
    world.stopped = True
    world.detector._timer.reset()
    world.now = 1000
    seconds, problem = hang_of(world.hang_after())
    assert seconds == 1120
    assert "sglang::scheduler is stopped by a signal" in problem


def test_a_server_that_does_not_answer_is_named_and_gets_no_test_request(world: World) -> None:
    world.alive, world.token = False, True
    assert "The engine's server has not answered for 120 s" in hang_of(world.hang_after(serving=None))[1]


def test_requests_without_tokens_are_a_hang(world: World) -> None:
    assert "Requests run or wait" in hang_of(world.hang_after(progress=BUSY))[1]


def test_tokens_in_the_metrics_are_a_sign_of_life_of_a_silent_engine(world: World) -> None:
    world.alive = False
    for tokens in range(40):
        world.exposition = b"sglang:num_running_reqs 3\nsglang:realtime_tokens_total %d\n" % tokens
        assert world.detector.check(SERVES, None) is None
        world.now += 15


def test_an_answered_test_request_clears_the_engine(world: World) -> None:
    """A gauge that still counts a request that is long gone."""
    world.token = True
    assert world.hang_after(progress=BUSY) is None
    assert any("not a hang" in line for line in world.logged)


def test_a_paused_engine_does_not_hang_but_an_unhealthy_one_does(world: World) -> None:
    assert world.hang_after(REFUSES, BUSY) is None
    assert world.hang_after(REFUSES, BUSY, is_unhealthy=True) is not None


def test_without_ready_an_answered_health_check_proves_that_it_computes(world: World) -> None:
    world.alive, world.has_ready = False, False
    assert world.hang_after(SERVES, BUSY) is None
    assert world.hang_after(REFUSES, BUSY) is not None
