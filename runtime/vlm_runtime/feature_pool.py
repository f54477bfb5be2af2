"""The true size of the pool of image features and what did not find room in it, from the engine's metrics and its log.

The variable that sizes the pool proves nothing: the engine reads it when a module is imported and again when it sums up
its memory, and a version or a plugin that imports too early gets another pool than the log's first line promises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from vlm_api.plan import ServingPlan
from vlm_api.report import Fallback, FeaturePool

_MIB: Final = 1 << 20
# A start without CUDA IPC has no such line, and most lines of a serving engine have none of these words.
_WORDS: Final = ("multimodal", "Multimodal", "MmItemMemoryPool")

# Clients find their words in the log as well, and no number of theirs may be one that Python cannot take.
# SGLang 0.5.16 to 0.5.23, multimodal/processors/base_processor.py, when the pool is made: its true size.
_RESERVED: Final = re.compile(r"CUDA IPC multimodal feature pools reserve ([0-9]{1,12}) MiB total on GPU [0-9]+")
# SGLang 0.5.12 to 0.5.23, multimodal/transport/cuda_ipc.py (before 0.5.18 in utils), once in each process.
_POOL_FULL: Final = re.compile(
    r"MmItemMemoryPool has no free chunk large enough for a [0-9.]+ MiB tensor \(pool size: ([0-9]{1,12}(?:\.[0-9]+)?) MiB\)"
)
# SGLang 0.5.16 to 0.5.23, managers/mm_utils.py, once in each process.
_SHARED_MEMORY_FULL: Final = re.compile(r"Failed to allocate shared memory for multimodal feature transport")
# SGLang 0.5.23, multimodal/processors/base_processor.py, each time.
_ON_CPU: Final = re.compile(r"Multimodal preprocessing ran out of GPU memory on \S+; retrying on CPU")

_SIZE_METRIC: Final = b"vlmserve_image_pool_size_bytes "
_FALLBACKS_METRIC: Final = b"vlmserve_image_pool_fallbacks_total "


@dataclass(frozen=True)
class PoolMetrics:
    """What the engine's own metrics say. Without a pool that the plugin can read, they say nothing."""

    size_bytes: int
    fallbacks: int


def pool_metrics(exposition: bytes) -> PoolMetrics | None:
    """The pool's size and fallbacks, from the engine's metrics in Prometheus' text format."""
    found: dict[bytes, int] = {}
    for line in exposition.splitlines():
        for name in (_SIZE_METRIC, _FALLBACKS_METRIC):
            if line.startswith(name):
                try:
                    found[name] = int(float(line[len(name) :]))
                except (ValueError, OverflowError):
                    return None
    size = found.get(_SIZE_METRIC)
    return PoolMetrics(size, found.get(_FALLBACKS_METRIC, 0)) if size else None


class PoolWatch:
    """Gathers what is seen of the pool. Lines come from one thread, metrics from another; a report may lag by a line."""

    def __init__(self, plan: ServingPlan) -> None:
        planned = plan.memory.feature_pool_mib
        self._planned_bytes = None if planned is None else planned * _MIB
        self._reserved_bytes: int | None = None
        self._told: PoolMetrics | None = None
        self._logged: dict[Fallback, None] = {}
        self._full_pool_bytes: int | None = None

    def read(self, line: str) -> bool:
        """Takes in a line of the engine's log; True where it was the first to say something of the pool."""
        if not any(word in line for word in _WORDS):
            return False
        before = (self._reserved_bytes, len(self._logged))
        if match := _RESERVED.search(line):
            # The first one stands: the engine says it before it takes requests, and nobody can say it for the engine later.
            self._reserved_bytes = self._reserved_bytes or int(match[1]) * _MIB
        elif match := _POOL_FULL.search(line):
            self._full_pool_bytes = round(float(match[1]) * _MIB)
            self._logged[Fallback.POOL_FULL] = None
        elif _SHARED_MEMORY_FULL.search(line):
            self._logged[Fallback.SHARED_MEMORY_FULL] = None
        elif _ON_CPU.search(line):
            self._logged[Fallback.PREPROCESSED_ON_CPU] = None
        return (self._reserved_bytes, len(self._logged)) != before

    def told(self, metrics: PoolMetrics | None) -> None:
        """Takes in what the engine's metrics say."""
        self._told = metrics or self._told

    def seen(self) -> FeaturePool | None:
        """All of it; None where no pool is planned and nothing was seen of one."""
        told, logged = self._told, list(self._logged)
        size = self._reserved_bytes or (told.size_bytes if told else None) or self._full_pool_bytes
        if self._planned_bytes is None and size is None and not logged:
            return None
        fallbacks = told.fallbacks if told else int(Fallback.POOL_FULL in logged)
        return FeaturePool(planned_bytes=self._planned_bytes, size_bytes=size, fallbacks=fallbacks, logged=logged)
