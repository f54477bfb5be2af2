"""Metrics of the feature pool on the GPU, through which image features go from preprocessing to the model.

It exists if the engine uses CUDA IPC, in the process that serves HTTP. SGLang releases features in a thread of its own, so
the pool's use is sampled once a second; its peak and its fallbacks are counted at each allocation.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vlm_runtime.sglang.inside import metric_specs
from vlm_runtime.sglang.inside.failsafe import FailSafe, hook

INTERVAL_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Usage:
    """One sample of the pool, in bytes. Usage is in units of the pool's allocation, a little more than the features."""

    size: int
    used: int
    leases: int


def read_usage(pool: Any) -> Usage:
    """Samples SGLang's MmItemMemoryPool. Raises AttributeError if this release has other attributes."""
    allocator = pool._pool
    free = sum(end - start for start, end in tuple(allocator._available_ranges))
    return Usage(allocator.usable_size, allocator.usable_size - free, pool.active_lease_count)


class PoolMetrics:
    """The pool's metrics."""

    def __init__(self, pool: Any, registry: Any = None) -> None:
        """``registry``: prometheus_client's, for tests. Raises AttributeError if the pool cannot be read."""
        read_usage(pool)
        self._pool = pool
        self._size = metric_specs.POOL_SIZE.create(registry)
        self._used = metric_specs.POOL_USED.create(registry)
        self._peak = metric_specs.POOL_PEAK.create(registry)
        self._leases = metric_specs.POOL_LEASES.create(registry)
        self._fallbacks = metric_specs.POOL_FALLBACKS.create(registry)
        self._peak_bytes = 0

    def sample(self) -> None:
        """Updates the gauges."""
        now = read_usage(self._pool)
        self._size.set(now.size)
        self._used.set(now.used)
        self._leases.set(now.leases)
        self._raise_peak(now.used)

    def count_allocation(self, pool: Any, lease: Any) -> None:
        """After an allocation; ``lease`` is None if the pool was full."""
        if pool is not self._pool:
            return
        if lease is None:
            self._fallbacks.inc()
        self._raise_peak(read_usage(pool).used)

    def _raise_peak(self, used: int) -> None:
        if used > self._peak_bytes:
            self._peak_bytes = used
            self._peak.set(used)


def watch_pool(pool: Any) -> None:
    """Counts at each allocation, and samples once a second in a thread of its own."""
    watched = PoolMetrics(pool)
    watched.sample()
    hook(type(pool), "wrap_tensor", "AFTER", after_allocation(watched))
    threading.Thread(target=_keep_sampling, args=(watched,), name="vlm-image-pool", daemon=True).start()


def after_allocation(watched: PoolMetrics) -> Callable[..., None]:
    """SGLang's AFTER hook: the result comes first, then the arguments. Returning None keeps the result."""
    fail_safe = FailSafe("the feature pool's allocations")

    def after(lease: Any, pool: Any, *_: Any, **__: Any) -> None:
        fail_safe(watched.count_allocation, pool, lease)

    return after


def _keep_sampling(watched: PoolMetrics) -> None:
    fail_safe = FailSafe("the feature pool's use")
    while not fail_safe.is_off:
        fail_safe(watched.sample)
        time.sleep(INTERVAL_SECONDS)
