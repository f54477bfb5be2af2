"""The feature pool's metrics from SGLang's allocator. No GPU here: the real classes are in tests/engine."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from vlm_runtime.sglang.inside.feature_pool_metrics import PoolMetrics, Usage, after_allocation, read_usage

MIB = 1 << 20


class Pool:
    """Stands in for SGLang's MmItemMemoryPool of 3 GiB on a GPU, with leases at these places."""

    def __init__(self, *leases: tuple[int, int]) -> None:
        self.set(*leases)

    def set(self, *leases: tuple[int, int]) -> None:
        """Leases as (start, end), in order."""
        data_start, end = 32 * 1024, 3072 * MIB
        free, place = [], data_start
        for lease in leases:
            free.append((place, lease[0]))
            place = lease[1]
        free.append((place, end))
        self.active_lease_count = len(leases)
        self._pool = SimpleNamespace(usable_size=end - data_start, _available_ranges=free)


def watched(pool: Any) -> tuple[PoolMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return PoolMetrics(pool, registry), registry


def test_size_usage_and_leases_are_sampled() -> None:
    pool = Pool((MIB, 7 * MIB), (10 * MIB, 16 * MIB))
    assert read_usage(pool) == Usage(size=3072 * MIB - 32 * 1024, used=12 * MIB, leases=2)
    metrics, registry = watched(pool)
    metrics.sample()
    assert registry.get_sample_value("vlmserve_feature_pool_size_bytes") == 3072 * MIB - 32 * 1024
    assert registry.get_sample_value("vlmserve_feature_pool_used_bytes") == 12 * MIB
    assert registry.get_sample_value("vlmserve_feature_pool_leases") == 2


def test_the_peak_stays_after_images_have_left() -> None:
    pool = Pool()
    metrics, registry = watched(pool)
    pool.set((MIB, 101 * MIB))
    metrics.count_allocation(pool, object())
    pool.set()
    metrics.sample()
    assert registry.get_sample_value("vlmserve_feature_pool_used_bytes") == 0
    assert registry.get_sample_value("vlmserve_feature_pool_peak_used_bytes") == 100 * MIB


def test_fallbacks_are_counted_in_the_feature_pool_only() -> None:
    pool, of_embeddings = Pool(), Pool()
    metrics, registry = watched(pool)
    after = after_allocation(metrics)
    assert after(None, pool, "tensor", use_pool_handle_cache=True) is None  # None: the result stays as it is
    after(None, of_embeddings, "tensor")
    after("proxy", pool, "tensor")
    assert registry.get_sample_value("vlmserve_feature_pool_fallbacks_total") == 1


def test_a_pool_of_another_release_creates_no_metrics() -> None:
    registry = CollectorRegistry()
    with pytest.raises(AttributeError):
        PoolMetrics(SimpleNamespace(occupied_chunks=[]), registry)
    assert list(registry.collect()) == []


def test_an_internal_error_costs_one_line_and_no_allocation(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool()
    metrics, _ = watched(pool)
    after = after_allocation(metrics)
    del pool._pool._available_ranges
    with caplog.at_level(logging.WARNING):
        after("proxy", pool)
        after("proxy", pool)
    assert len(caplog.records) == 1
    assert "no metrics of the feature pool's allocations" in caplog.text
