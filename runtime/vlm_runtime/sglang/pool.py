"""Watches the room on the GPU through which image features go from preprocessing to the model.

It exists where the engine moves them by CUDA IPC, in the process that serves HTTP. Releases happen in a thread of
SGLang's own, so its use is looked at once a second; its peak and what found no room are counted at each allocation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vlm_runtime.sglang import metrics
from vlm_runtime.sglang.harmless import Harmless, hook

INTERVAL_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Usage:
    """One look at the pool, in bytes. What is in use is in units of the pool's allocation, so a little more is held."""

    size: int
    used: int
    leases: int


def usage(pool: Any) -> Usage:
    """How full SGLang's MmItemMemoryPool is. Raises AttributeError where this version keeps its books otherwise."""
    books = pool._pool
    free = sum(end - start for start, end in tuple(books._available_ranges))
    return Usage(books.usable_size, books.usable_size - free, pool.active_lease_count)


class PoolMetrics:
    """The pool's metrics."""

    def __init__(self, pool: Any, registry: Any = None) -> None:
        """``registry``: prometheus_client's, for tests. Raises AttributeError where the pool cannot be read."""
        usage(pool)
        self._pool = pool
        self._size = metrics.POOL_SIZE.make(registry)
        self._used = metrics.POOL_USED.make(registry)
        self._peak = metrics.POOL_PEAK.make(registry)
        self._leases = metrics.POOL_LEASES.make(registry)
        self._fallbacks = metrics.POOL_FALLBACKS.make(registry)
        self._most = 0

    def look(self) -> None:
        """Takes over how full the pool is now."""
        now = usage(self._pool)
        self._size.set(now.size)
        self._used.set(now.used)
        self._leases.set(now.leases)
        self._raise_peak(now.used)

    def asked(self, pool: Any, lease: Any) -> None:
        """Somebody asked the pool for room; ``lease`` is None where there was none."""
        if pool is not self._pool:
            return
        if lease is None:
            self._fallbacks.inc()
        self._raise_peak(usage(pool).used)

    def _raise_peak(self, used: int) -> None:
        if used > self._most:
            self._most = used
            self._peak.set(used)


def watch_pool(pool: Any) -> None:
    """Counts at each allocation, and looks once a second from a thread of its own."""
    watched = PoolMetrics(pool)
    watched.look()
    hook(type(pool), "wrap_tensor", "AFTER", after_allocation(watched))
    threading.Thread(target=_keep_looking, args=(watched,), name="vlm-image-pool", daemon=True).start()


def after_allocation(watched: PoolMetrics) -> Callable[..., None]:
    """SGLang's AFTER hook: the result comes first, then the arguments. None keeps the result."""
    harmless = Harmless("the image pool's allocations")

    def after(lease: Any, pool: Any, *_: Any, **__: Any) -> None:
        harmless(watched.asked, pool, lease)

    return after


def _keep_looking(watched: PoolMetrics) -> None:
    harmless = Harmless("the image pool's use")
    while not harmless.off:
        harmless(watched.look)
        time.sleep(INTERVAL_SECONDS)
