"""What SGLang uses where nothing is set, and the sums of its memory, as far as its releases agree on them.

What differs between releases is in the catalogue: ``Release.default``, ``Release.does`` and ``Release.capacity_defaults``.
Paths are relative to ``sglang/srt``; tests/conformance compares with the engine's own resolution.
"""

from functools import cache
from typing import Any, Final

from vlm_operator.sglang.catalogue.releases import Release
from vlm_operator.sglang.profiles import Family, Profile, shipped

EMBEDDING_CACHE: Final = "SGLANG_VLM_CACHE_SIZE_MB"
POOL: Final = "SGLANG_MM_FEATURE_CACHE_MB"
POOL_MIB: Final = 1024
# Requests for which the engine keeps rows if nothing limits them (mem_cache/kv_cache_configurator.py, resolve_max_num_reqs).
ROWS: Final = 2048
# Requests that run at once with speculative decoding by default, and the algorithms that do so
# (arg_groups/speculative_hook.py).
SPECULATIVE_LIMIT: Final = 48
LIMITED_ALGORITHMS: Final = ("DFLASH", "DSPARK", "EAGLE", "EAGLE3", "FROZEN_KV_MTP", "NEXTN", "NGRAM", "STANDALONE")
# Host replicas of the KV cache, as a multiple of the device's (mem_cache/kv_cache_builder.py), if no size is given.
HICACHE_RATIO: Final = 2.0

# Quantisation while loading -> bytes of a weight, whatever the files hold. MXFP8 has a byte for 32 weights as their scale,
# NVFP4 one for 16 weights of half a byte each.
LOADED_BYTES: Final = {"fp8": 1.0, "w8a8_fp8": 1.0, "w8a8_int8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4_online": 0.5 + 1 / 16}
# Those that first load all weights as the files hold them, and then quantise (layers/quantization/fp8.py, create_fp8_weight_;
# w8a8_fp8.py; model_loader/loader.py, load_weights_and_postprocess). ``load_format: layered`` goes layer by layer.
QUANTISED_AFTERWARDS: Final = ("fp8", "w8a8_fp8", "mxfp8")

# What start-up puts in place of a default of None for a vision-language model, outside of the Hopper set.
_RESOLVED: Final = {"mm_preprocess_cache_size_mb": 0, "mm_feature_transport": "cpu", "prefill_decode_interval": 0}
_STATED: Final = (EMBEDDING_CACHE, "radix_eviction_policy")


def baseline(engine: Release) -> dict[str, Any]:
    """Setting -> value for a vision-language model wherever the Hopper set does not apply."""
    return {name: engine.default(name) for name in _STATED} | _RESOLVED


@cache
def hopper_set() -> tuple[Family, Profile]:
    """The shipped profile that releases with the fact ``hopper_set`` apply by themselves, with its family: the same values
    under the same conditions (arg_groups/model_overrides/qwen3_vl.py), but on MIG slices and virtual GPUs too."""
    return next((family, each) for family in shipped() for each in family.profiles if each.name == "qwen3_vl.hopper")


# Devices that are larger leave more for activations, and are joined by NVLink.
LARGE_DEVICE_MIB: Final = 60 * 1024


def activations_mib(
    memory_mib: int, *, chunked_prefill: int, decode_graph: int, tensor: int, pipeline: int, attention_groups: int = 1
) -> float:
    """MiB that the engine leaves for activations and graphs: arg_groups/memory_hook.py.

    ``attention_groups``: its ``attn_dp_size``, with which graphs are padded for every group.
    """
    reserved = 512 + max(chunked_prefill, 2048) * 1.5 + tensor * pipeline * 128 + decode_graph * 2
    if attention_groups > 1:
        reserved += decode_graph * attention_groups * (4.5 if decode_graph > 300 else 3)
    return max(reserved, 10 * 1024) if memory_mib > LARGE_DEVICE_MIB else reserved


def static_fraction(memory_mib: int, activations: float, vision_hidden: int | None) -> float:
    """The engine's own ``mem_fraction_static``: the share of a device for weights and KV cache together.

    arg_groups/memory_hook.py: what activations and graphs need is subtracted, then a factor for the vision
    encoder. The encoder's depth counts as 24 there, whatever it is; an unknown width is taken as the widest, 1152.
    """
    hidden = vision_hidden or 1152
    complexity = 24 * hidden**2 / (24 * 1024**2)
    factor = 0.95 * min(max(1 - 0.1 * (complexity - 1), 0.8), 1.05)
    return round((memory_mib - activations) / memory_mib, 3) * factor
