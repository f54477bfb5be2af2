"""Remembers in bounded memory which images came lately. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Final

_BITS: Final = 1 << 23
_PROBES: Final = 5


class RecentImages:
    """Two Bloom filters of 1 MiB each, the older one forgotten when the younger one is full or an hour old.

    It remembers an image for one to two hours, and at least the last ``capacity`` images. An image that never came is
    taken for a known one in about 1 of 8,000 cases when both are full, and never the other way round. What lies in
    them are bits of Python's own hash, keyed anew in each process: nothing can be learned from them about an image.
    """

    def __init__(
        self, capacity: int = 1 << 18, seconds: float = 3600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity = capacity
        self._seconds = seconds
        self._clock = clock
        self._younger, self._older = bytearray(_BITS >> 3), bytearray(_BITS >> 3)
        self._count = 0
        self._born = clock()

    def saw_before(self, content: Hashable) -> bool:
        """Whether the same content was here lately; from now on it was."""
        self._age()
        known_young = known_old = True
        for byte, bit in _places(hash(content)):
            known_young = known_young and bool(self._younger[byte] & bit)
            known_old = known_old and bool(self._older[byte] & bit)
            self._younger[byte] |= bit
        self._count += not known_young
        return known_young or known_old

    def _age(self) -> None:
        now = self._clock()
        age = now - self._born
        if age < self._seconds and self._count < self._capacity:
            return
        self._older = self._younger if age < 2 * self._seconds else bytearray(_BITS >> 3)
        self._younger = bytearray(_BITS >> 3)
        self._count = 0
        # Not from now on: where images are rare, nobody was here when its time was over.
        self._born = self._born + self._seconds if self._seconds <= age < 2 * self._seconds else now


def _places(value: int) -> Iterator[tuple[int, int]]:
    """The bits of a 64-bit hash: byte and mask."""
    first, step = value & 0xFFFFFFFF, (value >> 32 & 0xFFFFFFFF) | 1
    for probe in range(_PROBES):
        place = (first + probe * step) % _BITS
        yield place >> 3, 1 << (place & 7)
