"""The true size of the feature pool, and what did not fit into it, from the engine's metrics and log.

The variable that sizes the pool proves nothing: the engine reads it when a module is imported and again when it adds up its
memory, so a release or a plugin that imports early can get another pool than the first log line promises.
"""

import re
from typing import Final

from vlm_api.plan import ServingPlan
from vlm_api.report import Fallback, FeaturePool
from vlm_runtime.sglang.engine_metrics import PoolMetrics

_MIB: Final = 1 << 20
# Most lines of a serving engine contain none of these.
_WORDS: Final = ("multimodal", "Multimodal", "MmItemMemoryPool")

# Clients can write into the log: a number may not be longer than Python converts.
# SGLang 0.5.16 to 0.5.23, multimodal/processors/base_processor.py, when the pool is created: its true size.
_RESERVED: Final = re.compile(r"CUDA IPC multimodal feature pools reserve ([0-9]{1,12}) MiB total on GPU [0-9]+")
# SGLang 0.5.12 to 0.5.23, multimodal/transport/cuda_ipc.py (before 0.5.18 in utils), once in each process.
_POOL_FULL: Final = re.compile(
    r"MmItemMemoryPool has no free chunk large enough for a [0-9.]+ MiB tensor \(pool size: ([0-9]{1,12}(?:\.[0-9]+)?) MiB\)"
)
# SGLang 0.5.16 to 0.5.23, managers/mm_utils.py, once in each process.
_SHARED_MEMORY_FULL: Final = re.compile(r"Failed to allocate shared memory for multimodal feature transport")
# SGLang 0.5.23, multimodal/processors/base_processor.py, each time.
_ON_CPU: Final = re.compile(r"Multimodal preprocessing ran out of GPU memory on \S+; retrying on CPU")


class FeaturePoolMonitor:
    """Collects what is known about the pool. Lines and metrics come from two threads; a report may lag by a line."""

    def __init__(self, plan: ServingPlan) -> None:
        planned = plan.memory.feature_pool_mib
        self._planned_bytes = None if planned is None else planned * _MIB
        self._reserved_bytes: int | None = None
        self._metrics: PoolMetrics | None = None
        self._logged: dict[Fallback, None] = {}
        self._full_pool_bytes: int | None = None

    def read_line(self, line: str) -> bool:
        """Reads a line of the engine's log; True if it says something new about the pool."""
        if not any(word in line for word in _WORDS):
            return False
        before = (self._reserved_bytes, len(self._logged))
        if match := _RESERVED.search(line):
            # The first one counts: the engine logs it before it takes requests, so no client can have written it.
            self._reserved_bytes = self._reserved_bytes or int(match[1]) * _MIB
        elif match := _POOL_FULL.search(line):
            self._full_pool_bytes = round(float(match[1]) * _MIB)
            self._logged[Fallback.POOL_FULL] = None
        elif _SHARED_MEMORY_FULL.search(line):
            self._logged[Fallback.SHARED_MEMORY_FULL] = None
        elif _ON_CPU.search(line):
            self._logged[Fallback.PREPROCESSED_ON_CPU] = None
        return (self._reserved_bytes, len(self._logged)) != before

    def update(self, metrics: PoolMetrics | None) -> None:
        """Takes the engine's latest metrics; None keeps the previous ones."""
        self._metrics = metrics or self._metrics

    @property
    def state(self) -> FeaturePool | None:
        """The pool as it is known now; None if no pool is planned and there is no sign of one."""
        metrics, logged = self._metrics, list(self._logged)
        size = self._reserved_bytes or (metrics.size_bytes if metrics else None) or self._full_pool_bytes
        if self._planned_bytes is None and size is None and not logged:
            return None
        fallbacks = metrics.fallbacks if metrics else int(Fallback.POOL_FULL in logged)
        return FeaturePool(planned_bytes=self._planned_bytes, size_bytes=size, fallbacks=fallbacks, logged=logged)
