"""What the engine will choose by itself where a setting is left to it.

The same steps as SGLang 0.5.20 and later take (``arg_groups/model_overrides/qwen3_vl.py`` and ``memory_hook.py``), so
that a plan also says what was not passed. Where a fact is missing, nothing is expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vlm_api.plan import Setting
from vlm_operator import memory
from vlm_operator.resolve.conditions import GRAPH_SETTINGS, IMAGE_CACHES
from vlm_operator.resolve.context import Context, Declared, left
from vlm_operator.resolve.rules.workload import ENGINE_POOL_MIB

HOPPER = 9
LARGE_MIB = 60 * 1024
WIDENED_UP_TO = 512
BIG_POOL_FROM_REQUESTS, BIG_POOL_MIB = 400, 3072
OVERRIDDEN = ("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration")


def attention_backend(context: Context, declared: Declared) -> Iterator[Setting]:
    """The base attention backend stays the engine's: nothing was measured that says otherwise."""
    if context.cuda and context.family is not None:
        yield left(
            "attention_backend", "engine.attention_backend", "left to the engine, which chooses by compute capability"
        )


def fill_expected(context: Context, declared: Declared) -> None:
    """Writes what the engine will choose beside each setting that is left to it."""
    gpu = context.gpu
    if not context.cuda:
        return
    if gpu is None or gpu.compute_capability is None or context.engine.version is None:
        return
    choices = _choices(context, declared)
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
    choices = _by_hardware(context, declared, overridden)
    choices |= {
        "SGLANG_VLM_CACHE_SIZE_MB": 0 if overridden else 100,
        "mm_preprocess_cache_size_mb": 0,
        "mm_feature_transport": "cpu",
        "radix_eviction_policy": "priority" if overridden else "lru",
        "prefill_decode_interval": 22 if overridden else 0,
    }
    kept = any(int(declared.value(name) or 0) > 0 for name in IMAGE_CACHES)
    if overridden and context.one_node and not kept:
        choices["mm_feature_transport"] = "cuda_ipc"
    if (declared.value("mm_feature_transport") or choices["mm_feature_transport"]) == "cuda_ipc":
        running = int(declared.value("max_running_requests") or 0)
        big = overridden and not kept and running >= BIG_POOL_FROM_REQUESTS
        choices["SGLANG_MM_FEATURE_CACHE_MB"] = BIG_POOL_MIB if big else ENGINE_POOL_MIB
    return choices


def _by_hardware(context: Context, declared: Declared, overridden: bool) -> dict[str, Any]:
    gpu, family = context.gpu, context.family
    assert gpu is not None
    assert gpu.compute_capability is not None
    choices: dict[str, Any] = {}
    base = declared.value("attention_backend")
    if base is None and family is not None:
        base = family.attention_backend.get(str(gpu.compute_capability.major))
        if base is not None:
            choices["attention_backend"] = base
    if declared.value("attention_backend") is None and overridden:
        choices["decode_attention_backend"] = "flashinfer"
    elif base is not None:
        choices["decode_attention_backend"] = base
    if not any(context.choices.get(name) is not None for name in GRAPH_SETTINGS):
        _, limit = memory.engine_capacity_defaults(gpu.memory_mib, context.spec.parallelism.tensor)
        running = declared.value("max_running_requests")
        if running is not None:
            running = int(running)
            widened = overridden and running <= WIDENED_UP_TO
            limit = running if widened or running < limit else limit
        choices["cuda_graph_max_bs_decode"] = limit
    return choices
