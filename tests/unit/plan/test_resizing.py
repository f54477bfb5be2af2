"""Images count as the engine is told to resize them."""

from __future__ import annotations

from typing import Any

import pytest
from unit.plan.builders import images, plan, service

from vlm_api.plan import ServingPlan

FULL_HD = images(width=1920, height=1080)
THUMBNAIL = images(width=64, height=64)


def planned(workload: dict[str, Any], config: Any = None, **engine: Any) -> ServingPlan:
    settings = {} if config is None else {"settings": {"mm_process_config": config}}
    return plan(service(workload=workload, engine={"version": "0.5.23"} | settings | engine))


@pytest.mark.parametrize(
    "image",
    [
        {"size": {"shortest_edge": 65_536, "longest_edge": 1_048_576}},
        {"size": {"longest_edge": 1_048_576}},
        {"max_pixels": 1_048_576},
        {"size": {"longest_edge": 4_000_000}, "max_pixels": 1_048_576},
    ],
)
def test_a_lower_limit_of_the_user_makes_images_pool_and_requests_smaller(image: dict[str, Any]) -> None:
    whole, small = planned(FULL_HD).memory, planned(FULL_HD, {"image": image}).memory
    assert whole.image_tokens == 2040
    assert small.image_tokens is not None
    assert small.image_tokens <= 1024
    assert small.image_bytes is not None
    assert small.image_bytes <= 24 * 2**20
    assert (small.feature_pool_mib or 0) < (whole.feature_pool_mib or 0)
    assert (small.kv_cache_mib or 0) > (whole.kv_cache_mib or 0)


def test_a_raised_least_size_makes_small_images_larger() -> None:
    assert planned(THUMBNAIL).memory.image_tokens == 64
    assert planned(THUMBNAIL, {"image": {"size": {"shortest_edge": 1_048_576}}}).memory.image_tokens == 1024


def test_it_counts_as_a_flag_as_well() -> None:
    args = ["--mm-process-config", '{"image": {"size": {"longest_edge": 1048576}}}']
    assert (planned(FULL_HD, args=args).memory.image_tokens or 0) <= 1024


@pytest.mark.parametrize("config", [{}, {"image": {}}, {"video": {"max_pixels": 10}}, {"image": {"max_pixels": "x"}}])
def test_what_says_nothing_of_an_image_s_size_changes_nothing(config: dict[str, Any]) -> None:
    assert planned(FULL_HD, config).memory == planned(FULL_HD).memory
