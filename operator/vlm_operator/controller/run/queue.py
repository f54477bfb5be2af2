"""A queue of keys: each key is in it at most once, and never worked on twice at the same time."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from vlm_operator.controller.run.turns import Turns

FIRST_BACKOFF_SECONDS: Final = 1.0
LAST_BACKOFF_SECONDS: Final = 300.0
# Work that took longer is dear. Half of the workers (app.WORKERS) are kept free of it.
DEAR_SECONDS: Final = 1.0
DEAR_AT_ONCE: Final = 2


class Key(NamedTuple):
    """A service."""

    namespace: str
    name: str


class Cause(NamedTuple):
    """What an event is about: one state of one object."""

    uid: str
    version: str
    of_service: bool = False
    """Whether the object is the VLMService itself."""


# An event that is not about one state of one object.
NO_CAUSE: Final = Cause("", "")


@dataclass(slots=True)
class _State:
    due: float | None = None
    """When to work on it, by the loop's clock; None if it is not queued."""
    working: bool = False
    failures: int = 0
    event_at: float | None = None
    """When the first event came that no finished work covers; None if only a timer asks for work."""
    covers: float | None = None
    """``event_at`` of the work in progress."""
    routine: bool = False
    """Queued by something about all keys, so keys with an event of their own go first."""
    causes: tuple[Cause, ...] = ()
    """Events that came during the work."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)
    taken_at: float = 0.0
    dear: bool = False
    """Whether the last work on it took long."""


class WorkQueue:
    """Keys with a time at which each is due. Only for use inside one event loop."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._states: dict[Key, _State] = {}
        self._ready: Turns[Key] = Turns(DEAR_AT_ONCE)
        """Keys that are due, and those that are worked on."""
        self._news = asyncio.Event()
        self._jitter = jitter

    def __len__(self) -> int:
        """The number of keys that are due and wait for a worker."""
        return len(self._ready)

    def add(self, key: Key, after_seconds: float = 0.0, cause: Cause = NO_CAUSE, *, routine: bool = False) -> None:
        """An event queues a key, or brings it forward. During work on the key it is queued for afterwards.

        ``routine``: the event is about all keys, such as one of a node, and must not delay keys with an event of their own.
        """
        state = self._states.setdefault(key, _State())
        if state.working and cause != NO_CAUSE:
            # It may be the echo of a write by the work in progress, which is known when that is done.
            state.causes += (cause,)
            return
        if state.event_at is None:
            state.event_at = asyncio.get_running_loop().time()
        self._queue(key, state, after_seconds, routine=routine)

    def recheck(self, key: Key) -> None:
        """Queues a key without an event, so that it does not count towards the latency."""
        self._queue(key, self._states.setdefault(key, _State()), 0.0, routine=True)

    def _queue(self, key: Key, state: _State, after_seconds: float, *, routine: bool) -> None:
        due = asyncio.get_running_loop().time() + after_seconds
        if state.due is not None and state.due <= due and (routine or not state.routine):
            return
        state.due, state.routine = due if state.due is None else min(due, state.due), routine
        if not state.working:
            self._schedule(key, state)

    async def take(self) -> Key:
        """Waits for a key that is due. ``done``, ``retry`` or ``forget`` must follow."""
        while (key := self._ready.take(self._is_due)) is None:
            self._news.clear()
            await self._news.wait()
        state = self._states[key]
        state.due, state.working, state.taken_at = None, True, asyncio.get_running_loop().time()
        state.covers, state.event_at = state.event_at, None
        return key

    def _is_due(self, key: Key) -> bool:
        """A key that was brought forward is in it twice; the second time it may already wait for a retry."""
        state = self._states.get(key)
        if state is None or state.due is None or state.working:
            return False
        return state.due <= asyncio.get_running_loop().time()

    def done(
        self, key: Key, again_after_seconds: float | None = None, wrote: Callable[[Cause], bool] = lambda cause: False
    ) -> float | None:
        """Work on the key succeeded. It comes again after that time, spread by a tenth, and at once if events came meanwhile
        that are not echoes of what the work ``wrote``.

        Returns the seconds since the first event that this work covers, failed attempts included; None if only a timer had
        asked for it.
        """
        state = self._ended(key)
        covered, state.covers = state.covers, None
        state.working, state.failures = False, 0
        causes, state.causes = state.causes, ()
        if not all(wrote(cause) for cause in causes):
            state.due = None
            self.add(key)
        elif state.due is not None:
            self._schedule(key, state)
        if again_after_seconds is not None:
            self._queue(key, state, again_after_seconds * (0.9 + 0.2 * self._jitter()), routine=True)
        return None if covered is None else asyncio.get_running_loop().time() - covered

    def retry(self, key: Key, wrote: Callable[[Cause], bool] = lambda cause: False) -> float:
        """Work on the key failed. It comes again after 1 s, 2 s, 4 s ... 5 minutes, or after 1 s if the service itself changed
        meanwhile, since that may be the remedy. Events of nodes and pods are too many to count. Returns that time."""
        state = self._ended(key)
        causes, state.causes = state.causes, ()
        changed = any(cause.of_service and not wrote(cause) for cause in causes)
        failures = 0 if changed else state.failures
        delay = min(FIRST_BACKOFF_SECONDS * 2.0**failures, LAST_BACKOFF_SECONDS) * (0.9 + 0.2 * self._jitter())
        state.working, state.failures, state.due = False, min(failures + 1, 16), None
        if state.covers is not None:
            state.event_at, state.covers = state.covers, None
        self._queue(key, state, delay, routine=False)
        return delay

    def forget(self, key: Key) -> None:
        """The service is gone. An event that came during the work still counts."""
        if key not in self._states:
            return
        state = self._ended(key)
        del self._states[key]
        if state.timer is not None:
            state.timer.cancel()
        if state.due is not None or state.causes:
            self.add(key)

    def _ended(self, key: Key) -> _State:
        """Another may have the worker's turn now."""
        state = self._states[key]
        if state.working:
            state.dear = asyncio.get_running_loop().time() - state.taken_at > DEAR_SECONDS
            self._ready.end(key)
            self._news.set()
        return state

    def _schedule(self, key: Key, state: _State) -> None:
        if state.timer is not None:
            state.timer.cancel()
            state.timer = None
        loop = asyncio.get_running_loop()
        assert state.due is not None
        if state.due <= loop.time():
            self._put(key)
        else:
            state.timer = loop.call_at(state.due, self._put, key)

    def _put(self, key: Key) -> None:
        if (state := self._states.get(key)) is not None:
            if state.due is not None:
                state.due = min(state.due, asyncio.get_running_loop().time())  # a timer may be early by its resolution
            self._ready.put(key, key.namespace, routine=state.routine, dear=state.dear)
            self._news.set()
