"""A queue of keys: each key at most once in it, and never worked on twice at the same time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

FIRST_BACKOFF_SECONDS: Final = 1.0
LAST_BACKOFF_SECONDS: Final = 300.0


class Key(NamedTuple):
    """A service."""

    namespace: str
    name: str


class Cause(NamedTuple):
    """News of one state of one object."""

    uid: str
    version: str


# News that is about no single state of an object.
NO_CAUSE: Final = Cause("", "")


@dataclass(slots=True)
class _State:
    due: float | None = None
    """When to work on it, by the loop's clock; None: not queued."""
    working: bool = False
    failures: int = 0
    told_at: float | None = None
    """When the first event came that no finished work covers yet; None: nothing but a timer asks for work."""
    covers: float | None = None
    """``told_at`` of what is worked on now."""
    routine: bool = False
    """Queued for no reason of its own, so that what somebody waits for goes first."""
    causes: tuple[Cause, ...] = ()
    """News that came while it was worked on."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)


class WorkQueue:
    """Keys with a time at which each is due. Only for use inside one event loop."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._states: dict[Key, _State] = {}
        self._ready: asyncio.PriorityQueue[tuple[bool, int, Key]] = asyncio.PriorityQueue()
        """Keys that are due: what somebody waits for before routine, else in the order in which they came."""
        self._numbers = itertools.count()
        self._jitter = jitter

    def __len__(self) -> int:
        """Keys that are due now and wait for a worker."""
        return self._ready.qsize()

    def add(self, key: Key, after_seconds: float = 0.0, cause: Cause = NO_CAUSE, *, routine: bool = False) -> None:
        """An event queues a key, or brings it forward. While it is worked on it is queued for afterwards.

        ``routine``: the event is about all keys, such as one of a node, and is not to hold up what is about one.
        """
        state = self._states.setdefault(key, _State())
        if state.working and cause != NO_CAUSE:
            # It may be the echo of a write by the very work that is going on: that shows when it is done.
            state.causes += (cause,)
            return
        if state.told_at is None:
            state.told_at = asyncio.get_running_loop().time()
        self._queue(key, state, after_seconds, routine=routine)

    def look_again(self, key: Key) -> None:
        """A key is worth work without an event, whose time would count."""
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
        while True:
            _, _, key = await self._ready.get()
            state = self._states.get(key)
            # One that was brought forward is in it twice: the second time it may be waiting for another try.
            if state is None or state.due is None or state.working or state.due > asyncio.get_running_loop().time():
                continue
            state.due, state.working = None, True
            state.covers, state.told_at = state.told_at, None
            return key

    def done(
        self, key: Key, again_after_seconds: float | None = None, wrote: Callable[[Cause], bool] = lambda cause: False
    ) -> float | None:
        """Work on the key went well; it comes again by itself after that time, spread by a tenth, and at once where news
        came meanwhile that are not what the work itself ``wrote``.

        Returns the seconds since the first event that this work covers, failed attempts included; None where no event
        but a timer had asked for it.
        """
        state = self._states[key]
        covered, state.covers = state.covers, None
        state.working, state.failures = False, 0
        news, state.causes = state.causes, ()
        if not all(wrote(cause) for cause in news):
            state.due = None
            self.add(key)
        elif state.due is not None:
            self._schedule(key, state)
        if again_after_seconds is not None:
            self._queue(key, state, again_after_seconds * (0.9 + 0.2 * self._jitter()), routine=True)
        return None if covered is None else asyncio.get_running_loop().time() - covered

    def retry(self, key: Key) -> float:
        """Work on the key failed; it comes again after 1 s, 2 s, 4 s ... 5 minutes. Returns that time."""
        state = self._states[key]
        delay = min(FIRST_BACKOFF_SECONDS * 2.0**state.failures, LAST_BACKOFF_SECONDS) * (0.9 + 0.2 * self._jitter())
        state.working = False
        state.causes = ()
        # What came in meanwhile waits as well: it would most likely fail the same way.
        state.failures, state.due = min(state.failures + 1, 16), None
        if state.covers is not None:
            state.told_at, state.covers = state.covers, None
        self._queue(key, state, delay, routine=False)
        return delay

    def forget(self, key: Key) -> None:
        """The service is gone. An event that came while it was worked on still counts."""
        state = self._states.pop(key, None)
        if state is None:
            return
        if state.timer is not None:
            state.timer.cancel()
        if state.due is not None or state.causes:
            self.add(key)

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
            self._ready.put_nowait((state.routine, next(self._numbers), key))
