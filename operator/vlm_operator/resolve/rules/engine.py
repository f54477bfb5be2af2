"""What the engine will choose by itself where a setting is left to it.

The same steps as SGLang 0.5.20 and later take (``arg_groups/model_overrides/qwen3_vl.py`` and ``memory_hook.py``), so
that a plan also says what was not passed. Where a fact is missing, nothing is expected.
"""

from __future__ import annotations

from typing import Any

from vlm_api.plan import Sharing
from vlm_operator import memory
from vlm_operator.resolve.budget import ENGINE_POOL_MIB, GRAPH_FOLLOWS_LIMIT_SINCE
from vlm_operator.resolve.conditions import GRAPH_SETTINGS, IMAGE_CACHES, travels_by_cuda_ipc
from vlm_operator.resolve.context import Context, Declared
from vlm_operator.resolve.rules.attention import expected_backends

HOPPER = 9
LARGE_MIB = 60 * 1024
WIDENED_UP_TO = 512
BIG_POOL_FROM_REQUESTS, BIG_POOL_MIB = 400, 3072
# What 0.5.23 chooses for a vision-language model wherever its Hopper set does not apply.
OUTSIDE_THE_SET: dict[str, Any] = {
    "SGLANG_VLM_CACHE_SIZE_MB": 100,
    "mm_preprocess_cache_size_mb": 0,
    "mm_feature_transport": "cpu",
    "radix_eviction_policy": "lru",
    "prefill_decode_interval": 0,
}
THE_SET: dict[str, Any] = {
    "SGLANG_VLM_CACHE_SIZE_MB": 0,
    "mm_preprocess_cache_size_mb": 0,
    "radix_eviction_policy": "priority",
    "prefill_decode_interval": 22,
}
# Requests that run at once with speculative decoding where nobody says otherwise, and the algorithms that do so
# (arg_groups/speculative_hook.py).
SPECULATIVE_LIMIT = 48
LIMITED_ALGORITHMS = ("DFLASH", "DSPARK", "EAGLE", "EAGLE3", "FROZEN_KV_MTP", "NEXTN", "NGRAM", "STANDALONE")
OVERRIDDEN = ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration")


def fill_expected(context: Context, declared: Declared) -> None:
    """Writes what the engine will choose beside each setting that is left to it."""
    gpu = context.gpu
    if context.engine.version is None:
        return
    if not context.cuda:
        choices = dict(OUTSIDE_THE_SET)
    elif gpu is None or gpu.compute_capability is None or gpu.sharing is Sharing.MPS:
        # Under MPS the engine may see the whole card's memory or the client's part of it.
        return
    else:
        choices = _choices(context, declared)
    if str(declared.value("speculative_algorithm")).upper() in LIMITED_ALGORITHMS:
        choices["max_running_requests"] = SPECULATIVE_LIMIT
    for setting in list(declared):
        if setting.name in choices and context.knows(setting.name):
            declared.fill_expected(setting.name, choices[setting.name])


def _choices(context: Context, declared: Declared) -> dict[str, Any]:
    gpu = context.gpu
    assert gpu is not None
    assert gpu.compute_capability is not None
    if gpu.compute_capability.major == HOPPER and gpu.memory_mib is None:
        return {}
    overridden = (
        context.engine.has_override_set
        and context.model.architecture in OVERRIDDEN
        and gpu.compute_capability.major == HOPPER
        and (gpu.memory_mib or 0) >= LARGE_MIB
    )
    choices = OUTSIDE_THE_SET | (THE_SET if overridden else {}) | expected_backends(context, declared, overridden)
    choices["cuda_graph_max_bs_decode"] = _decode_graph(context, declared, overridden)
    kept = any(int(declared.value(name) or 0) > 0 for name in IMAGE_CACHES)
    if overridden and context.one_node and not kept:
        choices["mm_feature_transport"] = "cuda_ipc"
    if travels_by_cuda_ipc(declared):
        choices["mm_feature_transport"] = "cuda_ipc"
    if (declared.value("mm_feature_transport") or choices["mm_feature_transport"]) == "cuda_ipc":
        running = int(declared.value("max_running_requests") or 0)
        big = overridden and not kept and running >= BIG_POOL_FROM_REQUESTS
        choices["SGLANG_MM_FEATURE_CACHE_MB"] = BIG_POOL_MIB if big else ENGINE_POOL_MIB
    return choices


def _decode_graph(context: Context, declared: Declared, overridden: bool) -> int | None:
    """The largest batch that decodes inside a CUDA graph; None where the user's own graph settings decide."""
    sizes = declared.value("cuda_graph_bs_decode")
    if sizes:
        return max(int(size) for size in sizes)
    if any(context.choices.get(name) is not None for name in GRAPH_SETTINGS):
        return None
    assert context.gpu is not None
    older = not context.since(memory.SMALL_CLASS_SINCE)
    _, limit = memory.engine_capacity_defaults(context.gpu.memory_mib, context.spec.parallelism.tensor, older=older)
    running = declared.value("max_running_requests")
    if running is None:
        return limit
    widened = overridden and int(running) <= WIDENED_UP_TO
    if widened and int(running) > limit:
        return int(running)
    return min(int(running), limit) if context.since(GRAPH_FOLLOWS_LIMIT_SINCE) else limit
