"""Images: what the model's processor makes of them, also with the limits that the user passes to the engine."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.plan.builders import images, plan, service

from vlm_api.plan import ServingPlan
from vlm_operator.sglang.images.smart_resize import MAX_ASPECT_RATIO
from vlm_operator.sglang.profiles import family_of

QWEN3_VL = family_of("Qwen3VLForConditionalGeneration").images
QWEN2_5_VL = family_of("Qwen2_5_VLForConditionalGeneration").images


@pytest.mark.parametrize(
    ("size", "resized", "tokens", "image_bytes"),
    [
        ((512, 512), (512, 512), 256, 6_291_456),
        ((1280, 720), (1280, 704), 880, 21_626_880),
        ((1920, 1080), (1920, 1088), 2040, 50_135_040),
        ((3840, 2160), (3840, 2176), 8160, 200_540_160),
        ((1, 1), (256, 256), 64, 1_572_864),
        ((10_000, 10_000), (4096, 4096), 16_384, 402_653_184),
    ],
)
def test_an_image_becomes_as_many_bytes_and_tokens_as_the_processor_makes_of_it(size, resized, tokens, image_bytes):
    image = QWEN3_VL.cut(*size)
    assert image.size == resized
    assert (image.tokens, image.bytes) == (tokens, image_bytes)


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.sampled_from([QWEN3_VL, QWEN2_5_VL]))
def test_a_resized_image_stays_within_the_processor_s_limits(width, height, processing):
    if max(width, height) / min(width, height) > MAX_ASPECT_RATIO:
        with pytest.raises(ValueError, match="differ by more than 200 times"):
            processing.cut(width, height)
        return
    image = processing.cut(width, height)
    resized_width, resized_height = image.size
    assert resized_width % processing.factor == 0
    assert resized_height % processing.factor == 0
    assert image.bytes == 24 * resized_width * resized_height
    # A side never falls below one token, so a very long image may stay a little larger than the limit.
    assert resized_width * resized_height <= processing.max_pixels or min(image.size) == processing.factor
    assert resized_width * resized_height >= processing.min_pixels


FULL_HD = images(width=1920, height=1080)
THUMBNAIL = images(width=64, height=64)


def planned(workload: dict[str, Any], config: Any = None, **engine: Any) -> ServingPlan:
    settings = {} if config is None else {"settings": {"mm_process_config": config}}
    return plan(service(workload=workload, engine=settings | engine))


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


def test_a_checkpoint_s_own_file_counts():
    own = {"patch_size": 16, "merge_size": 2, "size.shortest_edge": 65536, "size.longest_edge": 1048576}
    assert QWEN3_VL.published(own).cut(1920, 1080).tokens == 1008
    assert QWEN3_VL.published({}) is QWEN3_VL
    assert QWEN3_VL.published({"resample": 3}) is QWEN3_VL
    assert QWEN3_VL.published({"patch_size": 2**20, "size.longest_edge": 1048576}) is QWEN3_VL


def test_qwen2_vl_with_size_alone_gets_the_engine_s_own_limit():
    """SGLang 0.5.23 with the real processor: 16,386 tokens at 4096 x 4096 with both limits in the file, at most 1,280 with
    ``size`` alone."""
    family = family_of("Qwen2VLForConditionalGeneration").images
    size = {"size.shortest_edge": 3136, "size.longest_edge": 12845056}
    assert family.published({**size, "min_pixels": 3136, "max_pixels": 12845056}).cut(4096, 4096).tokens == 16384
    assert family.published(size).cut(4096, 4096).tokens <= 1280
