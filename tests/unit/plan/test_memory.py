"""Sums that users can check by hand: images, pools, weights, KV cache, what the engine reserves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_operator import memory
from vlm_operator.facts.types import ModelFacts
from vlm_operator.profiles import family_of

QWEN3_VL = family_of("Qwen3VLForConditionalGeneration").image_processing
QWEN2_5_VL = family_of("Qwen2_5_VLForConditionalGeneration").image_processing
QWEN3_VL_8B = ModelFacts(parameters=8e9, layers=36, kv_heads=8, head_size=128, vision_hidden_size=1152)


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
    image = memory.image_after_resizing(*size, QWEN3_VL)
    assert (image.width, image.height) == resized
    assert (image.tokens, image.bytes) == (tokens, image_bytes)


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.sampled_from([QWEN3_VL, QWEN2_5_VL]))
def test_a_resized_image_stays_within_the_processor_s_limits(width, height, processing):
    if max(width, height) / min(width, height) > memory.MAX_ASPECT_RATIO:
        with pytest.raises(ValueError, match="differ by more than 200 times"):
            memory.image_after_resizing(width, height, processing)
        return
    image = memory.image_after_resizing(width, height, processing)
    assert image.width % processing.factor == 0
    assert image.height % processing.factor == 0
    assert image.bytes == 24 * image.width * image.height
    # A side never falls below one token, so a very long image may stay a little larger than the limit.
    assert image.width * image.height <= processing.max_pixels or min(image.width, image.height) == processing.factor
    assert image.width * image.height >= processing.min_pixels


@pytest.mark.parametrize(
    ("images", "size", "least_mib", "most_mib"),
    [(400, (512, 512), 2400, 2752), (400, (1280, 720), 8250, 9216), (400, (1920, 1080), 19_125, 21_120)],
)
def test_a_pool_holds_all_images_in_flight_and_a_tenth_more(images, size, least_mib, most_mib):
    image = memory.image_after_resizing(*size, QWEN3_VL)
    pool = memory.pool_for_images_mib(images, image.bytes)
    assert least_mib * 1.1 <= pool <= most_mib
    assert pool % memory.POOL_GRANULE_MIB == 0
    assert memory.images_in_pool(pool, image.bytes) >= images


def test_the_engine_s_static_fraction_is_what_the_engine_itself_computes():
    # H100 80 GB and a vision encoder of width 1152: observed on the engine's own resolution.
    activations = memory.activations_mib(81_559, chunked_prefill=8192, decode_graph=256, tensor=1, pipeline=1)
    assert memory.static_fraction(81_559, activations, 1152) == pytest.approx(0.7722, abs=5e-5)


@pytest.mark.parametrize(
    ("graph", "fraction"),
    [pytest.param(400, 0.64239, id="wide graphs"), pytest.param(50, 0.81296, id="graphs for each group's share")],
)
def test_attention_groups_pad_graphs_and_the_engine_reserves_for_it(graph, fraction):
    # Observed on the engine's own resolution of 0.5.23: --tp-size 8 --attn-dp-size 8, a vision encoder of width 64.
    activations = memory.activations_mib(
        81_559, chunked_prefill=8192, decode_graph=graph, tensor=8, pipeline=1, attention_groups=8
    )
    assert memory.static_fraction(81_559, activations, 64) == pytest.approx(fraction, abs=5e-6)


@pytest.mark.parametrize(
    ("memory_mib", "tensor", "chunk", "graph"),
    [
        (15_360, 1, 2048, 8),
        (23_034, 1, 4096, 48),
        (46_068, 4, 4096, 160),
        (81_559, 1, 8192, 256),
        (143_771, 8, 8192, 512),
        (183_359, 1, 16_384, 512),
        (None, 1, 4096, 160),
    ],
)
def test_the_engine_s_defaults_by_device_memory(memory_mib, tensor, chunk, graph):
    assert memory.engine_capacity_defaults(memory_mib, tensor) == (chunk, graph)


def test_releases_before_0_5_20_took_less_on_devices_of_24_gib():
    assert memory.engine_capacity_defaults(23_034, 1, older=True) == (2048, 24)
    assert memory.engine_capacity_defaults(23_034, 4, older=True) == (2048, 80)
    assert memory.engine_capacity_defaults(46_068, 1, older=True) == memory.engine_capacity_defaults(46_068, 1)


def test_contexts_and_communication_are_gone_before_weights_are_loaded():
    assert memory.context_mib(81_559, 1) == 1280
    assert memory.context_mib(23_034, 1) == 1151  # 5 % of a small device
    assert memory.context_mib(81_559, 2) == 1280 + 1536
    assert memory.context_mib(143_771, 8) == 1280 + 2048  # PR 11716 of SGLang: 3,186 MiB on an H200
    assert memory.context_mib(46_068, 8) == 1280 + 512


def test_weights_and_kv_cache_are_split_over_devices():
    assert memory.weights_mib(QWEN3_VL_8B, 1) == 15_259
    assert memory.weights_mib(QWEN3_VL_8B, 2) == 7_630
    assert memory.kv_bytes_per_token(QWEN3_VL_8B, tensor=1, pipeline=1) == 2 * 36 * 8 * 128 * 2
    assert memory.kv_bytes_per_token(QWEN3_VL_8B, tensor=16, pipeline=1) == 2 * 36 * 1 * 128 * 2
    assert memory.weights_mib(ModelFacts(), 1) is None
    assert memory.kv_bytes_per_token(ModelFacts(), 1, 1) is None


@pytest.mark.parametrize(
    ("tensor", "images", "expected_mib"),
    [(1, None, 8192), (4, None, 16_384), (1, 4000, 26_624)],
)
def test_shared_memory_covers_nccl_and_the_images_that_travel_through_it(tensor, images, expected_mib):
    size = memory.shared_memory_mib(cuda=True, devices_in_pod=tensor, images=images, image_bytes=6_291_456)
    assert size == expected_mib
