"""Asks the engine's schedulers for a sign of life at a slow pace, and reports when there was none for too long."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vlm_runtime.probe.stall import IDLE_SHARE, Observation, StallLimits, StallTimer
from vlm_runtime.sglang.client import Answer, EngineClient, EngineUnreachable
from vlm_runtime.sglang.engine_metrics import Progress, parse_progress
from vlm_runtime.sglang.processes import WorkerProcess, cpu_seconds, is_stopped

CHECK_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True)
class _CpuTime:
    """CPU seconds used so far; None if /proc does not say."""

    server: float | None
    workers: float | None


class HangDetector:
    """Watches one engine. Not thread-safe."""

    def __init__(
        self,
        client: EngineClient,
        limits: StallLimits,
        engine_pid: int,
        workers: Sequence[WorkerProcess],
        log: Callable[[str], None],
        check_seconds: float = CHECK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._limits = limits
        self._engine_pid = engine_pid
        self._workers = workers
        self._log = log
        self._clock = clock
        self._pause = min(check_seconds, limits.idle / 4)
        self._timeout_seconds = min(TIMEOUT_SECONDS, limits.idle / 8)
        self._timer = StallTimer()
        self._checked_at: float | None = None
        self._is_answered = False
        self._cpu_time = _CpuTime(None, None)

    def is_due(self) -> bool:
        """Whether it is time for the next check."""
        return self._checked_at is None or self._clock() - self._checked_at >= self._pause

    @property
    def is_answered(self) -> bool:
        """Whether the schedulers answered the last check."""
        return self._is_answered

    @property
    def is_stalled(self) -> bool:
        """Whether nothing had moved at the last check."""
        return self._timer.stalled_seconds(self._clock()) > 0

    def unready_reason(self) -> str | None:
        """Why requests should go elsewhere, or None."""
        silent = self._timer.unanswered_seconds(self._clock())
        return (
            f"the engine's schedulers have not answered for {silent:.0f} s" if silent >= self._limits.unready else None
        )

    def check(self, serving: Answer | None, progress: Progress | None, *, is_unhealthy: bool = False) -> str | None:
        """One check: what is wrong if the engine hangs, else None.

        ``serving``: the engine's answer to whether it serves, None without one. ``progress``: what its metrics say now,
        None if they were not read. ``is_unhealthy``: it refuses requests because an answer came too late, not because
        somebody paused it.
        """
        self._checked_at = checked_at = self._clock()
        self._is_answered = answered = self._client.is_alive(self._timeout_seconds)
        if not answered and progress is None and serving is not None:
            progress = self._read_progress()
        excused = self._is_excused(serving, answered, is_unhealthy)
        self._timer.add(Observation(checked_at, answered, excused, progress))
        now = self._clock()
        stalled = self._timer.stalled_seconds(now)
        cpu_time = self._read_cpu_time()
        if stalled <= now - checked_at:  # The first check without a move: CPU time counts from here.
            self._cpu_time = cpu_time
        if stalled < self._limits.idle:
            return None
        busy_seconds = self._busy_seconds(serving, cpu_time)
        if stalled < self._limits.busy and (busy_seconds is None or busy_seconds > stalled * IDLE_SHARE):
            return None
        if serving is not None and self._client.computes():
            self._log(f"nothing moved for {stalled:.0f} s, but a test request of one token was answered: not a hang")
            self._timer.reset()
            return None
        return self._explain(stalled, answered, serving, busy_seconds)

    def _read_progress(self) -> Progress | None:
        try:
            return parse_progress(self._client.metrics())
        except EngineUnreachable:
            return None

    def _is_excused(self, serving: Answer | None, answered: bool, is_unhealthy: bool) -> bool:
        """Paused; or proved to work: without /ready, the answer came through the whole model."""
        if serving is None:
            return False
        if not self._client.has_ready:
            return serving.status == 200
        return answered and serving.status != 200 and not is_unhealthy

    def _read_cpu_time(self) -> _CpuTime:
        if not self.is_stalled:
            return self._cpu_time
        workers = [worker.pid for worker in self._workers]
        return _CpuTime(
            cpu_seconds([self._engine_pid], with_descendants=False), cpu_seconds(workers, with_descendants=True)
        )

    def _busy_seconds(self, serving: Answer | None, now: _CpuTime) -> float | None:
        """CPU seconds that the silent processes used since the stall began; None if unknown."""
        before, after = (
            (self._cpu_time.server, now.server) if serving is None else (self._cpu_time.workers, now.workers)
        )
        pids = [self._engine_pid] if serving is None else [worker.pid for worker in self._workers]
        if any(map(is_stopped, pids)):
            return 0.0
        return None if before is None or after is None else after - before

    def _explain(self, stalled: float, answered: bool, serving: Answer | None, busy_seconds: float | None) -> str:
        if serving is None:
            what, who = "The engine's server has not answered", "it"
        elif answered:
            what, who = "Requests run or wait, but the engine produced no token", "the schedulers"
        else:
            what, who = "The engine's schedulers have not answered or produced a token", "they"
        stopped = [worker.title for worker in self._workers if is_stopped(worker.pid)]
        return (
            f"{what} for {stalled:.0f} s"
            + (f"; {who} used {busy_seconds:.1f} s of CPU in that time" if busy_seconds is not None else "")
            + (f"; {', '.join(stopped)} is stopped by a signal (state T)" if stopped else "")
            + "."
        )
