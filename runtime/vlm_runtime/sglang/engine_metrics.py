"""What the runtime reads from the engine's metrics, in Prometheus' text format. Pure."""

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from vlm_api.report import ImageCounts

WINDOW_SECONDS: Final = 3600.0

# Counters of SGLang that grow with every step, every token, or every request that ends.
_PROGRESS: Final = frozenset(
    {
        b"sglang:prompt_tokens_total",
        b"sglang:generation_tokens_total",
        b"sglang:realtime_tokens_total",
        b"sglang:time_to_first_token_seconds_count",
        b"sglang:inter_token_latency_seconds_count",
    }
)
_IN_FLIGHT: Final = frozenset({b"sglang:num_running_reqs", b"sglang:num_queue_reqs"})
# Of the plugin in the engine (inside/metric_specs.py).
_RECEIVED: Final = b"vlmserve_images_received_total"
_REPEATED: Final = b"vlmserve_images_repeated_total"
_POOL_SIZE: Final = b"vlmserve_feature_pool_size_bytes"
_POOL_FALLBACKS: Final = b"vlmserve_feature_pool_fallbacks_total"


@dataclass(frozen=True)
class Progress:
    """What the engine has computed so far, and what it still has to do."""

    computed: float
    """Grows while anything is computed; it has no unit."""
    in_flight: float
    """Requests that run or wait."""


@dataclass(frozen=True)
class PoolMetrics:
    """The feature pool as the plugin in the engine reports it."""

    size_bytes: int
    fallbacks: int


def parse_progress(exposition: bytes) -> Progress | None:
    """The engine's progress; None without SGLang's metrics of requests."""
    in_flight = _values(exposition, _IN_FLIGHT)
    return Progress(sum(_values(exposition, _PROGRESS)), sum(in_flight)) if in_flight else None


def parse_image_counts(exposition: bytes) -> tuple[int, int] | None:
    """Images received and images repeated since the engine's start; None if it does not count them."""
    received, repeated = _count(exposition, _RECEIVED), _count(exposition, _REPEATED)
    return None if received is None or repeated is None else (received, repeated)


def parse_pool_metrics(exposition: bytes) -> PoolMetrics | None:
    """The feature pool's size and fallbacks; None without a pool that the plugin can read."""
    size = _count(exposition, _POOL_SIZE)
    return PoolMetrics(size, _count(exposition, _POOL_FALLBACKS) or 0) if size else None


def _count(exposition: bytes, name: bytes) -> int | None:
    values = _values(exposition, {name})
    return int(values[-1]) if values else None


def _values(exposition: bytes, names: Collection[bytes]) -> list[float]:
    """The finite values of all series of these metrics."""
    lines = (line for line in exposition.splitlines() if line.startswith((b"sglang:", b"vlmserve_")))
    texts = [line.rpartition(b" ")[2] for line in lines if line.partition(b"{")[0].partition(b" ")[0] in names]
    return [value for text in texts if (value := _finite_number(text)) is not None]


def _finite_number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class ImageWindow:
    """Samples of three counters, and how much they grew within the last hour."""

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._samples: deque[tuple[float, int, int, int]] = deque()

    def add(self, now: float, received: int, repeated: int, fell_back: int = 0) -> None:
        """One sample, later than those before it."""
        self._samples.append((now, received, repeated, fell_back))
        # The window is counted from the first sample, so the second one must be too old as well.
        while len(self._samples) > 2 and self._samples[1][0] <= now - self._seconds:
            self._samples.popleft()

    def counts(self) -> ImageCounts:
        """The growth between the oldest and the newest sample. Needs at least one sample."""
        start, *before = self._samples[0]
        end, *after = self._samples[-1]
        received, repeated, fell_back = (max(late - early, 0) for early, late in zip(before, after, strict=True))
        return ImageCounts(received=received, repeated=repeated, fell_back=fell_back, window_seconds=round(end - start))
