"""The container's life: the engine as a child, signals forwarded, every exit explained."""

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
from vlm_runtime.report.log import Log
from vlm_runtime.report.state import RuntimeState
from vlm_runtime.sglang.failure import Exit, classify, describe_model, failure
from vlm_runtime.sglang.leftovers import is_shared_memory_full
from vlm_runtime.supervise.engine import EngineProcess

# Before it is ready, the engine has no requests to finish.
STOP_SECONDS: Final = 3.0
# From the first line about the cause to the end of a serving engine: its own shutdown takes seconds.
LAST_WORDS_SECONDS: Final = 60.0
_TICK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class ChildExited:
    """A child process ended."""


@dataclass(frozen=True)
class StopRequested:
    """The container received a signal to end."""

    signal: int


@dataclass(frozen=True)
class EngineFailed:
    """The engine runs, but is lost."""

    failure: Failure


@dataclass(frozen=True)
class LeaderGone:
    """The group's leader, for which this stopping worker pod waited, has ended."""


Event = ChildExited | StopRequested | EngineFailed | LeaderGone


class Supervisor:
    """One container's life. Handles one event after the other, in the main thread."""

    def __init__(
        self,
        plan: ServingPlan,
        engine: EngineProcess,
        state: RuntimeState,
        log: Log,
        events: SimpleQueue[Event],
        *,
        endpoint_delay_seconds: float,
        oom_kills: Callable[[], int],
        heal: Callable[[], None] = lambda: None,
        wait_for_leader: Callable[[], None] | None = None,
    ) -> None:
        """``wait_for_leader`` returns once the group's leader has ended; None: this pod is the leader."""
        self._plan = plan
        self._engine = engine
        self._state = state
        self._log = log
        self._events = events
        self._endpoint_delay_seconds = endpoint_delay_seconds
        self._oom_kills = oom_kills
        self._oom_kills_before = oom_kills()
        self._heal = heal
        self._wait_for_leader = wait_for_leader
        self._healing: threading.Thread | None = None
        self._is_stopping = False
        self._failure: Failure | None = None
        self._drain_deadline = 0.0
        self._timer: tuple[float, Callable[[], None]] | None = None

    def run(self, watch: Callable[[int], None]) -> Failure | None:
        """Starts the engine and returns when it has ended: None after a requested stop, else the failure.

        ``watch`` runs in a thread of its own and gets the engine's PID.
        """
        self._state.advance(Phase.STARTING)
        try:
            self._engine.start()
        except OSError as error:
            return self._fail(failure("EngineExited", f"The engine could not be started: {error}."))
        except ValueError as error:
            return self._fail(
                failure("BadPlan", f"The plan's arguments or variables are invalid for a process: {error}.")
            )
        threading.Thread(target=watch, args=(self._engine.pid,), name="watcher", daemon=True).start()
        self._after(self._state.remaining_seconds, self._end_slow_start)
        while True:
            self._state.heartbeat()
            event = self._next_event()
            if isinstance(event, StopRequested):
                self._stop(event.signal)
            elif isinstance(event, EngineFailed):
                self._end_with(event.failure)
            elif isinstance(event, LeaderGone):
                self._end_after_leader()
            exit_status = self._engine.reap()
            if exit_status is not None:
                return self._explain_exit(exit_status)
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
        """Sets the only timer; None cancels it."""
        self._timer = None if action is None else (time.monotonic() + seconds, action)

    def _run_timer(self) -> None:
        if self._timer is not None and time.monotonic() >= self._timer[0]:
            action, self._timer = self._timer[1], None
            action()

    def _end_slow_start(self) -> None:
        if self._state.was_ready:
            return
        last = self._log.tail()[-1:]
        self._end_with(
            failure(
                "StartupTimeout",
                f"Not ready after {self._state.budget_seconds} s, in phase {self._state.phase.value}."
                + (f" Last line: {last[0][:400]}." if last else ""),
            )
        )

    def _stop(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._is_stopping:
            self._log.write(f"{name} again: ending now")
            self._kill()
        elif self._failure is not None:
            self._is_stopping = True
        elif self._state.was_ready:
            self._is_stopping = True
            self._state.set_stopping(Phase.DRAINING)
            self._engine.close_connections()
            delay = self._endpoint_delay_seconds
            self._log.write(f"{name}: not ready from now on; serving {delay:g} s longer, until no new requests arrive")
            self._healing = threading.Thread(target=self._heal, name="heal", daemon=True)
            self._healing.start()
            self._drain_deadline = time.monotonic() + delay + self._plan.runtime.drain_seconds
            self._after(delay, self._drain)
        else:
            self._is_stopping = True
            self._log.write(f"{name} before the engine was ready: ending now")
            self._state.set_stopping(Phase.STOPPED)
            self._engine.terminate()
            self._after(STOP_SECONDS, self._kill)

    def _drain(self) -> None:
        seconds = self._drain_deadline - time.monotonic()
        if self._healing is not None and self._healing.is_alive() and seconds > 0:
            self._after(min(_TICK_SECONDS, seconds), self._drain)
            return
        if self._wait_for_leader is None:
            self._log.write(f"the engine finishes its running requests, within {max(seconds, 0.0):.0f} s")
            self._engine.terminate()
        else:
            # In older releases, a worker pod's engine ends at once on SIGTERM, and with it the leader's requests.
            self._log.write(
                f"waiting for the leader to finish its running requests, for at most {max(seconds, 0.0):.0f} s"
            )
            threading.Thread(
                target=self._report_leader_gone, args=(self._wait_for_leader,), name="leader", daemon=True
            ).start()
        self._after(max(seconds, 0.0), self._end_slow_drain)

    def _report_leader_gone(self, wait_for_leader: Callable[[], None]) -> None:
        wait_for_leader()
        self._events.put(LeaderGone())

    def _end_after_leader(self) -> None:
        self._log.write("the leader of the group has ended: ending the engine")
        self._engine.terminate()
        # It may wait for a message of the leader that never comes.
        self._after(STOP_SECONDS, self._kill)

    def _end_slow_drain(self) -> None:
        self._log.write(f"requests still run after {self._plan.runtime.drain_seconds} s: ending the engine")
        self._kill()

    def _end_with(self, why: Failure) -> None:
        if not self._is_stopping and self._failure is None:
            self._fail(why)
            self._kill()

    def _kill(self) -> None:
        self._after(0.0, None)
        self._engine.kill()

    def _fail(self, why: Failure) -> Failure:
        self._failure = self._log.without_secrets(why)
        self._state.set_failed(self._failure)
        return self._failure

    def _explain_exit(self, exit_status: Exit) -> Failure | None:
        self._engine.clean_up()
        if self._failure is not None:
            return self._failure
        if self._is_stopping:
            self._log.write(f"the engine ended with {exit_status}, as requested")
            self._state.set_stopping(Phase.STOPPED)
            return None
        return self._fail(
            classify(
                exit_status,
                # Earlier problems with requests are not the cause.
                self._log.tail(LAST_WORDS_SECONDS if self._state.was_ready else math.inf),
                was_ready=self._state.was_ready,
                oom_kills=self._oom_kills() - self._oom_kills_before,
                device=self._plan.hardware.device,
                shared_memory_full=is_shared_memory_full(),
                model=describe_model(self._plan),
                nvml_note=self._state.nvml_note,
                in_group=self._plan.runtime.nodes > 1,
            )
        )
