"""The life of the container: the engine as a child, signals forwarded, every exit explained."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from vlm_api.plan import ServingPlan
from vlm_api.report import Failure, Phase
from vlm_runtime.engine_process import EngineProcess
from vlm_runtime.failure import Exit, classify, failure
from vlm_runtime.model import about_model
from vlm_runtime.output import Output
from vlm_runtime.shared_memory import is_full
from vlm_runtime.state import RuntimeState

# The engine needs no time to end what nobody was promised yet.
STOP_SECONDS: Final = 3.0
# From the first line of what ends a serving engine to its end: its own shutdown takes seconds.
LAST_WORDS_SECONDS: Final = 60.0
_TICK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Child:
    """A child process ended."""


@dataclass(frozen=True)
class Asked:
    """Someone asked the container to end."""

    signal: int


@dataclass(frozen=True)
class Lost:
    """The watcher found that the engine is lost although it runs."""

    failure: Failure


@dataclass(frozen=True)
class HeadGone:
    """A member of a group is to end, and the head that it waited for is no longer there."""


Event = Child | Asked | Lost | HeadGone


class Supervisor:
    """One container's life. All decisions are taken in the main thread, one event after the other."""

    def __init__(
        self,
        plan: ServingPlan,
        engine: EngineProcess,
        state: RuntimeState,
        output: Output,
        events: SimpleQueue[Event],
        *,
        endpoint_delay_seconds: float,
        oom_kills: Callable[[], int],
        heal: Callable[[], None] = lambda: None,
        head_gone: Callable[[], None] | None = None,
    ) -> None:
        """``head_gone`` returns once the head of the group is no longer there; None: this pod is the head itself."""
        self._plan = plan
        self._engine = engine
        self._state = state
        self._output = output
        self._events = events
        self._endpoint_delay_seconds = endpoint_delay_seconds
        self._oom_kills = oom_kills
        self._oom_kills_before = oom_kills()
        self._heal = heal
        self._head_gone = head_gone
        self._healing: threading.Thread | None = None
        self._stopping = False
        self._failure: Failure | None = None
        self._drain_at_most_until = 0.0
        self._timer: tuple[float, Callable[[], None]] | None = None

    def run(self, watch: Callable[[int], None]) -> Failure | None:
        """Starts the engine and returns when it has ended: None where that was asked for.

        ``watch`` runs in a thread of its own and gets the engine's process number.
        """
        self._state.advance(Phase.STARTING)
        try:
            self._engine.start()
        except OSError as error:
            return self._lost(failure("EngineExited", f"The engine could not be started: {error}."))
        except ValueError as error:
            return self._lost(failure("BadPlan", f"Arguments or variables cannot be given to a process: {error}."))
        threading.Thread(target=watch, args=(self._engine.pid,), name="watcher", daemon=True).start()
        self._after(self._state.remaining_seconds, self._start_is_too_slow)
        while True:
            self._state.turns()
            event = self._next_event()
            if isinstance(event, Asked):
                self._stop(event.signal)
            elif isinstance(event, Lost):
                self._end_with(event.failure)
            elif isinstance(event, HeadGone):
                self._follow()
            ended = self._engine.reap()
            if ended is not None:
                return self._ended(ended)
            self._run_timer()

    def _next_event(self) -> Event | None:
        wait = _TICK_SECONDS
        if self._timer is not None:
            wait = min(wait, max(self._timer[0] - time.monotonic(), 0.0))
        try:
            return self._events.get(timeout=wait)
        except Empty:
            return None

    def _after(self, seconds: float, action: Callable[[], None] | None) -> None:
        """Sets the one alarm; None takes it away."""
        self._timer = None if action is None else (time.monotonic() + seconds, action)

    def _run_timer(self) -> None:
        if self._timer is not None and time.monotonic() >= self._timer[0]:
            action, self._timer = self._timer[1], None
            action()

    def _start_is_too_slow(self) -> None:
        if self._state.was_ready:
            return
        last = self._output.tail()[-1:]
        self._end_with(
            failure(
                "StartupTimeout",
                f"Not ready after {self._state.budget_seconds} s, in phase {self._state.phase.value}."
                + (f" Last line: {last[0][:400]}." if last else ""),
            )
        )

    def _stop(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stopping:
            self._output.say(f"{name} again: ending at once")
            self._kill()
        elif self._failure is not None:
            self._stopping = True
        elif self._state.was_ready:
            self._stopping = True
            self._state.ends(Phase.DRAINING)
            self._engine.end_connections()
            delay = self._endpoint_delay_seconds
            self._output.say(
                f"{name}: not ready from now on; serving {delay:g} s longer, until no new requests come here"
            )
            self._healing = threading.Thread(target=self._heal, name="heal", daemon=True)
            self._healing.start()
            self._drain_at_most_until = time.monotonic() + delay + self._plan.runtime.drain_seconds
            self._after(delay, self._drain)
        else:
            self._stopping = True
            self._output.say(f"{name} before the engine was ready: ending at once")
            self._state.ends(Phase.STOPPED)
            self._engine.terminate()
            self._after(STOP_SECONDS, self._kill)

    def _drain(self) -> None:
        seconds = self._drain_at_most_until - time.monotonic()
        if self._healing is not None and self._healing.is_alive() and seconds > 0:
            self._after(min(_TICK_SECONDS, seconds), self._drain)
            return
        if self._head_gone is None:
            self._output.say(f"the engine finishes its running requests, in {max(seconds, 0.0):.0f} s at most")
            self._engine.terminate()
        else:
            # Before SGLang 0.5.21 a member that is asked to end does so at once, and the head's requests with it.
            self._output.say(
                f"waiting for the head to finish its running requests, for {max(seconds, 0.0):.0f} s at most"
            )
            threading.Thread(target=self._wait_for_the_head, args=(self._head_gone,), name="head", daemon=True).start()
        self._after(max(seconds, 0.0), self._drained_too_long)

    def _wait_for_the_head(self, head_gone: Callable[[], None]) -> None:
        head_gone()
        self._events.put(HeadGone())

    def _follow(self) -> None:
        self._output.say("the head of the group is gone: ending the engine")
        self._engine.terminate()
        # It may wait for a word of the head that never comes.
        self._after(STOP_SECONDS, self._kill)

    def _drained_too_long(self) -> None:
        self._output.say(f"requests still ran after {self._plan.runtime.drain_seconds} s: ending the engine")
        self._kill()

    def _end_with(self, why: Failure) -> None:
        if not self._stopping and self._failure is None:
            self._lost(why)
            self._kill()

    def _kill(self) -> None:
        self._after(0.0, None)
        self._engine.kill()

    def _lost(self, why: Failure) -> Failure:
        self._failure = self._output.without_secrets(why)
        self._state.failed(self._failure)
        return self._failure

    def _ended(self, ended: Exit) -> Failure | None:
        self._engine.clear()
        if self._failure is not None:
            return self._failure
        if self._stopping:
            self._output.say(f"the engine ended with {ended}, as asked")
            self._state.ends(Phase.STOPPED)
            return None
        return self._lost(
            classify(
                ended,
                # What was wrong with requests earlier on is not why it ended.
                self._output.tail(LAST_WORDS_SECONDS if self._state.was_ready else math.inf),
                was_ready=self._state.was_ready,
                oom_kills=self._oom_kills() - self._oom_kills_before,
                device=self._plan.hardware.device,
                shared_memory_full=is_full(),
                model=about_model(self._plan),
                nvml=self._state.nvml_note,
                in_group=self._plan.runtime.nodes > 1,
            )
        )
