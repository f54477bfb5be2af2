"""Asks the engine's schedulers for a sign of life, at a slow pace, and says when there has been none for too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vlm_runtime.client import Answer, EngineClient, EngineUnreachable
from vlm_runtime.hang import IDLE_SHARE, Look, Patience, Production, Stillness, read_production
from vlm_runtime.processes import Worker, cpu_seconds, is_stopped

PULSE_SECONDS: Final = 15.0
TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True)
class _Used:
    """CPU seconds used so far; None where /proc does not say."""

    server: float | None
    workers: float | None


class Pulse:
    """One engine's. Not for several threads."""

    def __init__(
        self,
        client: EngineClient,
        patience: Patience,
        engine_pid: int,
        workers: Sequence[Worker],
        say: Callable[[str], None],
        pulse_seconds: float = PULSE_SECONDS,
    ) -> None:
        self._client = client
        self._patience = patience
        self._engine_pid = engine_pid
        self._workers = workers
        self._say = say
        self._pause = min(pulse_seconds, patience.idle / 4)
        self._timeout_seconds = min(TIMEOUT_SECONDS, patience.idle / 8)
        self._stillness = Stillness()
        self._asked_at: float | None = None
        self._is_answered = False
        self._used = _Used(None, None)

    def is_due(self) -> bool:
        """Whether it is time to ask again."""
        return self._asked_at is None or time.monotonic() - self._asked_at >= self._pause

    @property
    def is_answered(self) -> bool:
        """True: the schedulers answered when they were last asked."""
        return self._is_answered

    @property
    def is_still(self) -> bool:
        """True: nothing moved when it was last looked at."""
        return self._stillness.seconds(time.monotonic()) > 0

    def why_not_serving(self) -> str | None:
        """Why requests had better go elsewhere, or None."""
        silent = self._stillness.unanswered_seconds(time.monotonic())
        return (
            f"the engine's schedulers have answered nothing for {silent:.0f} s"
            if silent >= self._patience.unready
            else None
        )

    def take(self, serving: Answer | None, production: Production | None, *, is_unhealthy: bool = False) -> str | None:
        """Asks once; what is wrong where the engine hangs, else None.

        ``serving``: its answer to whether it serves, None where there was none. ``production``: what its metrics say
        now, None where they were not asked. ``is_unhealthy``: it refuses requests since it answered one too late, not
        because somebody paused it.
        """
        self._asked_at = asked_at = time.monotonic()
        self._is_answered = answered = self._client.has_pulse(self._timeout_seconds)
        if not answered and production is None and serving is not None:
            production = self._production()
        self._stillness.add(Look(asked_at, answered, self._is_excused(serving, answered, is_unhealthy), production))
        now = time.monotonic()
        still = self._stillness.seconds(now)
        used = self._used_now()
        if still <= now - asked_at:  # The first look without a move: computing is counted from here.
            self._used = used
        if still < self._patience.idle:
            return None
        busy_seconds = self._busy_seconds(serving, used)
        if still < self._patience.busy and (busy_seconds is None or busy_seconds > still * IDLE_SHARE):
            return None
        if serving is not None and self._client.computes():
            self._say(f"nothing moved for {still:.0f} s, but a question of one token was answered: no hang")
            self._stillness.forget()
            return None
        return self._explain(still, answered, serving, busy_seconds)

    def _production(self) -> Production | None:
        try:
            return read_production(self._client.metrics())
        except EngineUnreachable:
            return None

    def _is_excused(self, serving: Answer | None, answered: bool, is_unhealthy: bool) -> bool:
        """Paused, or proved to work: before /ready there was only the question of one token."""
        if serving is None:
            return False
        if not self._client.has_ready:
            return serving.status == 200
        return answered and serving.status != 200 and not is_unhealthy

    def _used_now(self) -> _Used:
        if not self.is_still:
            return self._used
        workers = [worker.pid for worker in self._workers]
        return _Used(
            cpu_seconds([self._engine_pid], with_descendants=False), cpu_seconds(workers, with_descendants=True)
        )

    def _busy_seconds(self, serving: Answer | None, now: _Used) -> float | None:
        """CPU seconds that those used who should have moved something, since it has moved; None where unknown."""
        before, after = (self._used.server, now.server) if serving is None else (self._used.workers, now.workers)
        held = is_stopped(self._engine_pid) if serving is None else any(is_stopped(w.pid) for w in self._workers)
        if held:
            return 0.0
        return None if before is None or after is None else after - before

    def _explain(self, still: float, answered: bool, serving: Answer | None, busy_seconds: float | None) -> str:
        if serving is None:
            what, who = "The engine's server has answered nothing", "it"
        elif answered:
            what, who = "Requests run or wait, but no token came", "the schedulers"
        else:
            what, who = "The engine's schedulers have answered nothing, and no token came,", "they"
        stopped = [w.title for w in self._workers if is_stopped(w.pid)]
        return (
            f"{what} for {still:.0f} s"
            + (f"; {who} used {busy_seconds:.1f} s of CPU in that time" if busy_seconds is not None else "")
            + (f"; {', '.join(stopped)} is held by a signal (state T)" if stopped else "")
            + "."
        )
