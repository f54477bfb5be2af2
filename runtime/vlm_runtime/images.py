"""From the engine's counters to how many images came lately. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

from vlm_api.report import SeenImages

WINDOW_SECONDS: Final = 3600.0

_RECEIVED: Final = b"vlmserve_images_received_total "
_REPEATED: Final = b"vlmserve_images_repeated_total "


def image_counts(exposition: bytes) -> tuple[int, int] | None:
    """Images received and images repeated since the engine's start, from its metrics; None where it counts none."""
    counts: dict[bytes, int] = {}
    for line in exposition.splitlines():
        for name in (_RECEIVED, _REPEATED):
            if line.startswith(name):
                try:
                    counts[name] = int(float(line[len(name) :]))
                except (ValueError, OverflowError):
                    return None
    return (counts[_RECEIVED], counts[_REPEATED]) if len(counts) == 2 else None


class ImageWindow:
    """Keeps samples of three counters, and says how much they grew within the last hour."""

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, int, int, int]] = deque()

    def add(self, now: float, received: int, repeated: int, fell_back: int = 0) -> None:
        """One sample, later than those before it."""
        self._samples.append((now, received, repeated, fell_back))
        # The first sample is the one that the window is counted from, so the next one must be too old as well.
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._seconds:
            self._samples.popleft()

    def seen(self) -> SeenImages:
        """The growth between the oldest and the newest sample. At least one sample is there."""
        start, *before = self._samples[0]
        end, *after = self._samples[-1]
        received, repeated, fell_back = (max(late - early, 0) for early, late in zip(before, after, strict=True))
        return SeenImages(received=received, repeated=repeated, fell_back=fell_back, window_seconds=round(end - start))
