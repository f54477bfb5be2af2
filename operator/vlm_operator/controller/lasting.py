"""What is told of a service only once it has lasted, and taken back only once its end has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from vlm_operator.controller.queue import Key

Told = TypeVar("Told")

# Discovery of GPUs that starts anew takes its labels back for seconds; pods are made anew within seconds.
DEBOUNCE_SECONDS: Final = 15.0


class Lasting(Generic[Told]):
    """Kept in memory only: an operator that starts anew waits once more, and forgets nothing told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned: dict[Key, float] = {}

    def lasting(self, key: Key, now: Told | None, told: Told | None) -> tuple[Told | None, bool]:
        """What to tell, and whether that may soon be something else. ``told`` is what the status says so far."""
        if (now is None) == (told is None):
            self._turned.pop(key, None)
            return now, False
        since = self._turned.setdefault(key, self._clock())
        if self._clock() - since >= DEBOUNCE_SECONDS:
            del self._turned[key]
            return now, False
        return told, True

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._turned.pop(key, None)
