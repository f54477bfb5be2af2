"""The pool of image features as it really is.

There is no GPU here: the lines below are recorded, in that they are made by hand from the formats in the source of SGLang
0.5.23, filled in for a plan of 3,072 MiB. tests/engine/test_pool.py holds them to the real source.
"""

from __future__ import annotations

import pytest
from unit.runtime.harness import make_plan

from vlm_api.plan import PlanMemory
from vlm_api.report import Fallback, FeaturePool
from vlm_runtime.feature_pool import PoolMetrics, PoolWatch, pool_metrics

MIB = 1 << 20

PROMISED = (
    "[2026-01-01 00:00:00] Using CUDA IPC for multimodal features: reserving up to 3072 MiB on base GPU 0 across 1 "
    "tokenizer worker(s). This reduces KV cache headroom; a full pool falls back to CPU transport."
)
RESERVED = (
    "[2026-01-01 00:00:01] CUDA IPC multimodal feature pools reserve 3072 MiB total on GPU 0 (3072 MiB per tokenizer "
    "worker × 1; configured budget 3072 MiB)."
)
FROZEN = RESERVED.replace("3072", "1024")
POOL_FULL = (
    "[2026-01-01 00:00:02] MmItemMemoryPool has no free chunk large enough for a 47.81 MiB tensor (pool size: 3072.00 "
    "MiB); falling back to non-IPC transport. Consider increasing SGLANG_MM_FEATURE_CACHE_MB."
)
SHARED_MEMORY_FULL = (
    "[2026-01-01 00:00:03] Failed to allocate shared memory for multimodal feature transport ([Errno 28] No space left on "
    "device); falling back to inline transport. Consider increasing /dev/shm size."
)
ON_CPU = "[2026-01-01 00:00:04] Multimodal preprocessing ran out of GPU memory on cuda:0; retrying on CPU"
OTHERS = (
    PROMISED,
    "[2026-01-01 00:00:05] Multimodal data loading enabled",
    "[2026-01-01 00:00:06] Reserving 3.00 GB of the KV budget for post-sizing multimodal allocations "
    "(feature-transport pools + embedding cache).",
)
SIZES = b"vlmserve_image_pool_size_bytes 3.221192704e+09\nvlmserve_image_pool_fallbacks_total 7.0\n"


def planned(mib: int | None = 3072) -> PoolWatch:
    return PoolWatch(make_plan().model_copy(update={"memory": PlanMemory(feature_pool_mib=mib)}))


def test_the_true_size_is_read_where_the_engine_makes_the_pool_and_not_where_it_promises_it() -> None:
    pool = planned()
    for line in OTHERS:
        assert not pool.read(line)
    assert pool.seen() == FeaturePool(planned_bytes=3072 * MIB)
    assert pool.read(FROZEN)
    assert pool.seen() == FeaturePool(planned_bytes=3072 * MIB, size_bytes=1024 * MIB)


def test_the_engines_own_word_on_the_pool_stands_against_what_clients_write_later() -> None:
    pool = planned()
    pool.read(RESERVED)
    assert not pool.read(FROZEN)
    assert pool.seen() == FeaturePool(planned_bytes=3072 * MIB, size_bytes=3072 * MIB)


@pytest.mark.parametrize("number", ["9" * 5000, "1.2.3", "", "٣"])
def test_what_is_no_size_says_nothing_of_the_pool(number: str) -> None:
    pool = planned()
    assert not pool.read(f"CUDA IPC multimodal feature pools reserve {number} MiB total on GPU 0")
    assert not pool.read(
        f"MmItemMemoryPool has no free chunk large enough for a 1 MiB tensor (pool size: {number} MiB)"
    )


def test_the_plugins_metric_tells_the_size_where_the_log_does_not() -> None:
    pool = planned()
    pool.told(pool_metrics(SIZES))
    assert pool.seen() == FeaturePool(planned_bytes=3072 * MIB, size_bytes=3_221_192_704, fallbacks=7)
    pool.read(RESERVED)
    found = pool.seen()
    assert found is not None
    assert found.size_bytes == 3072 * MIB


def test_a_full_pool_tells_its_size_in_versions_that_say_no_more_of_it() -> None:
    pool = planned()
    assert pool.read(POOL_FULL)
    assert not pool.read(POOL_FULL)
    assert pool.seen() == FeaturePool(
        planned_bytes=3072 * MIB, size_bytes=3072 * MIB, fallbacks=1, logged=[Fallback.POOL_FULL]
    )


def test_features_that_leave_their_way_otherwise_are_told_without_a_pool_too() -> None:
    pool = planned(None)
    assert pool.seen() is None
    assert pool.read(SHARED_MEMORY_FULL)
    assert pool.read(ON_CPU)
    assert pool.seen() == FeaturePool(logged=[Fallback.SHARED_MEMORY_FULL, Fallback.PREPROCESSED_ON_CPU])


def test_a_count_by_the_plugin_is_kept_when_the_metrics_are_away_for_a_moment() -> None:
    pool = planned()
    pool.told(PoolMetrics(3072 * MIB, 7))
    pool.told(pool_metrics(b""))
    found = pool.seen()
    assert found is not None
    assert found.fallbacks == 7


@pytest.mark.parametrize(
    "text", [b"", b"vlmserve_image_pool_size_bytes NaN\n", b"vlmserve_image_pool_fallbacks_total 1.0\n", b"<html>"]
)
def test_an_engine_without_a_pool_that_can_be_read_says_nothing(text: bytes) -> None:
    assert pool_metrics(text) is None
