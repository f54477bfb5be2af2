"""Sums that users can check by hand: pools, weights, KV cache, what the engine reserves."""

import pytest

from vlm_operator.facts.types import ModelFacts
from vlm_operator.sglang import defaults, memory
from vlm_operator.sglang.profiles import family_of

QWEN3_VL = family_of("Qwen3VLForConditionalGeneration").images
QWEN3_VL_8B = ModelFacts(parameters=8e9, layers=36, kv_heads=8, head_size=128, vision_hidden_size=1152)


@pytest.mark.parametrize(
    ("images", "size", "least_mib", "most_mib"),
    [(400, (512, 512), 2400, 2752), (400, (1280, 720), 8250, 9216), (400, (1920, 1080), 19_125, 21_120)],
)
def test_a_pool_holds_all_images_in_flight_and_a_tenth_more(images, size, least_mib, most_mib):
    image = QWEN3_VL.cut(*size)
    pool = memory.pool_mib([(images, image.bytes)])
    assert least_mib * 1.1 <= pool <= most_mib
    assert pool % memory.POOL_GRANULE_MIB == 0
    assert memory.chunks_in_pool(pool, [image.bytes]) >= images


def test_the_engine_s_static_fraction_is_what_the_engine_itself_computes():
    # H100 80 GB and a vision encoder of width 1152: observed on the engine's own resolution.
    activations = defaults.activations_mib(81_559, chunked_prefill=8192, decode_graph=256, tensor=1, pipeline=1)
    assert defaults.static_fraction(81_559, activations, 1152) == pytest.approx(0.7722, abs=5e-5)


@pytest.mark.parametrize(
    ("graph", "fraction"),
    [pytest.param(400, 0.64239, id="wide graphs"), pytest.param(50, 0.81296, id="graphs for each group's share")],
)
def test_attention_groups_pad_graphs_and_the_engine_reserves_for_it(graph, fraction):
    # Observed on the engine's own resolution: --tp-size 8 --attn-dp-size 8, a vision encoder of width 64.
    activations = defaults.activations_mib(
        81_559, chunked_prefill=8192, decode_graph=graph, tensor=8, pipeline=1, attention_groups=8
    )
    assert defaults.static_fraction(81_559, activations, 64) == pytest.approx(fraction, abs=5e-6)


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
    [(1, 0, 8192), (4, 0, 16_384), (1, 4000, 26_624)],
)
def test_shared_memory_covers_nccl_and_the_images_that_travel_through_it(tensor, images, expected_mib):
    size = memory.shared_memory_mib(cuda=True, devices_in_pod=tensor, travelling_bytes=images * 6_291_456)
    assert size == expected_mib
