"""The pool of image features as it really is.

There is no GPU here: the lines below are recorded, in that they are made by hand from the formats in the source of SGLang
0.5.23, filled in for a plan of 3,072 MiB. tests/engine/test_pool.py holds them to the real source.
"""

from __future__ import annotations

import pytest
from unit.runtime.harness import make_plan

from vlm_api.plan import PlanMemory
from vlm_api.report import Fallback, FeaturePool
from vlm_runtime.sglang.engine_metrics import PoolMetrics, parse_pool_metrics
from vlm_runtime.sglang.feature_pool import FeaturePoolMonitor

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
SIZES = b"vlmserve_feature_pool_size_bytes 3.221192704e+09\nvlmserve_feature_pool_fallbacks_total 7.0\n"


def planned(mib: int | None = 3072) -> FeaturePoolMonitor:
    return FeaturePoolMonitor(make_plan().model_copy(update={"memory": PlanMemory(feature_pool_mib=mib)}))


def test_the_true_size_is_read_from_the_line_of_the_allocation() -> None:
    pool = planned()
    for line in OTHERS:
        assert not pool.read_line(line)
    assert pool.state == FeaturePool(planned_bytes=3072 * MIB)
    assert pool.read_line(FROZEN)
    assert pool.state == FeaturePool(planned_bytes=3072 * MIB, size_bytes=1024 * MIB)


def test_later_text_of_clients_does_not_change_the_size() -> None:
    pool = planned()
    pool.read_line(RESERVED)
    assert not pool.read_line(FROZEN)
    assert pool.state == FeaturePool(planned_bytes=3072 * MIB, size_bytes=3072 * MIB)


@pytest.mark.parametrize("number", ["9" * 5000, "1.2.3", "", "٣"])
def test_an_invalid_size_is_ignored(number: str) -> None:
    pool = planned()
    assert not pool.read_line(f"CUDA IPC multimodal feature pools reserve {number} MiB total on GPU 0")
    assert not pool.read_line(
        f"MmItemMemoryPool has no free chunk large enough for a 1 MiB tensor (pool size: {number} MiB)"
    )


def test_the_metric_gives_the_size_until_the_log_does() -> None:
    pool = planned()
    pool.update(parse_pool_metrics(SIZES))
    assert pool.state == FeaturePool(planned_bytes=3072 * MIB, size_bytes=3_221_192_704, fallbacks=7)
    pool.read_line(RESERVED)
    found = pool.state
    assert found is not None
    assert found.size_bytes == 3072 * MIB


def test_a_full_pool_gives_its_size_in_older_releases() -> None:
    pool = planned()
    assert pool.read_line(POOL_FULL)
    assert not pool.read_line(POOL_FULL)
    assert pool.state == FeaturePool(
        planned_bytes=3072 * MIB, size_bytes=3072 * MIB, fallbacks=1, logged=[Fallback.POOL_FULL]
    )


def test_slower_paths_are_reported_without_a_pool_too() -> None:
    pool = planned(None)
    assert pool.state is None
    assert pool.read_line(SHARED_MEMORY_FULL)
    assert pool.read_line(ON_CPU)
    assert pool.state == FeaturePool(logged=[Fallback.SHARED_MEMORY_FULL, Fallback.PREPROCESSED_ON_CPU])


def test_the_last_metrics_are_kept_while_none_come() -> None:
    pool = planned()
    pool.update(PoolMetrics(3072 * MIB, 7))
    pool.update(parse_pool_metrics(b""))
    found = pool.state
    assert found is not None
    assert found.fallbacks == 7
