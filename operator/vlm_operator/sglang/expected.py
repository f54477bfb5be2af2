"""What the engine will choose by itself for settings that are left to it, so that a plan also shows what was not passed.

The same steps as the engine's own resolution takes from 0.5.20 on (``arg_groups/pipeline.py``). If a fact is missing,
nothing is expected.
"""

from typing import Any, Final

from vlm_api.plan import Sharing
from vlm_operator.sglang import defaults
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.profiles import ProfileSetting
from vlm_operator.sglang.profiles.needs import GRAPH_SETTINGS, IMAGE_CACHES
from vlm_operator.sglang.profiles.trial import graph_bounds
from vlm_operator.sglang.transport import travels_by_cuda_ipc

# Values of the Hopper set that have conditions of their own.
_CONDITIONAL: Final = ("mm_feature_transport", "decode_attention_backend")


def applies_hopper_set(context: Context) -> bool | None:
    """Whether the engine applies its Qwen3-VL set by itself; None if that depends on a device memory that is unknown.

    It looks at the model, the compute capability and the memory, so it applies the set on MIG slices and virtual GPUs too.
    """
    gpu, (family, profile) = context.gpu, defaults.hopper_set()
    if gpu is None or gpu.compute_capability is None:
        return False
    majors = {capability.partition(".")[0] for capability in profile.when.compute_capability}
    if str(gpu.compute_capability.major) not in majors:
        return False
    if gpu.memory_mib is None:
        return None
    known = context.engine.has_override_set and context.model.architecture in family.architectures
    return known and gpu.memory_mib >= profile.when.min_memory_mib


def _the_set() -> dict[str, Any]:
    return {each.name: each.value for each in defaults.hopper_set()[1].settings if each.compute is None}


def _setting(name: str) -> ProfileSetting:
    return next(each for each in defaults.hopper_set()[1].settings if each.name == name)


def fill_expected(context: Context, declared: Declared) -> None:
    """Writes what the engine will choose beside each setting that is left to it."""
    gpu = context.gpu
    if context.engine.version is None:
        return
    if not context.cuda:
        choices = defaults.baseline(context.engine)
    elif gpu is None or gpu.compute_capability is None or gpu.sharing is Sharing.MPS:
        # Under MPS the engine may see the memory of the whole GPU or the client's part of it.
        return
    else:
        choices = _choices(context, declared)
    if str(declared.value("speculative_algorithm")).upper() in defaults.LIMITED_ALGORITHMS:
        choices["max_running_requests"] = defaults.SPECULATIVE_LIMIT
    for setting in list(declared):
        if setting.name in choices and context.knows(setting.name):
            declared.fill_expected(setting.name, choices[setting.name])


def _choices(context: Context, declared: Declared) -> dict[str, Any]:
    overridden = applies_hopper_set(context)
    if overridden is None:
        return {}
    choices = defaults.baseline(context.engine)
    if overridden:
        choices |= {name: value for name, value in _the_set().items() if name not in _CONDITIONAL}
    choices |= expected_backends(context, declared, overridden)
    choices["cuda_graph_max_bs_decode"] = _decode_graph(context, declared, overridden)
    kept = any(int(declared.value(name) or 0) > 0 for name in IMAGE_CACHES)
    if overridden and context.one_node and not kept:
        choices["mm_feature_transport"] = _the_set()["mm_feature_transport"]
    if travels_by_cuda_ipc(declared):
        choices["mm_feature_transport"] = "cuda_ipc"
    if (declared.value("mm_feature_transport") or choices["mm_feature_transport"]) == "cuda_ipc":
        running = int(declared.value("max_running_requests") or 0)
        steps = _setting(defaults.POOL).steps if overridden and not kept else [(0, defaults.POOL_MIB)]
        choices[defaults.POOL] = max(mib for least, mib in steps if running >= least)
    return choices


def _decode_graph(context: Context, declared: Declared, overridden: bool) -> int | None:
    """The largest batch that decodes inside a CUDA graph; None where the user's own graph settings decide."""
    sizes = declared.value("cuda_graph_bs_decode")
    if sizes:
        return max(int(size) for size in sizes)
    if any(context.choices.get(name) is not None for name in GRAPH_SETTINGS):
        return None
    assert context.gpu is not None
    _, limit = context.engine.capacity_defaults(context.gpu.memory_mib, context.spec.parallelism.tensor)
    running = declared.value("max_running_requests")
    if running is None:
        return limit
    if overridden and limit < int(running) <= min(graph_bounds(_setting("cuda_graph_max_bs_decode"))):
        return int(running)
    return min(int(running), limit) if context.engine.does("graph_within_running_limit") else limit


def decode_graph(context: Context, declared: Declared) -> int | None:
    """The largest batch that decodes inside a CUDA graph, as planned or as the engine chooses it; None if it is unknown."""
    setting = declared.get("cuda_graph_max_bs_decode")
    if setting is not None and setting.applied:
        return int(setting.value)
    gpu, overridden = context.gpu, applies_hopper_set(context)
    if not context.cuda or context.engine.version is None or gpu is None or gpu.compute_capability is None:
        return None
    if gpu.memory_mib is None or gpu.sharing is Sharing.MPS or overridden is None:
        return None
    return _decode_graph(context, declared, overridden)


# What speculative decoding with a tree of drafts is not left to (model_override_base.py, get_default_attn_backend).
_ONE_DRAFT_ONLY = ("fa3", "trtllm_mha")


def _default(context: Context, declared: Declared, major: int) -> str | None:
    """The family's backend on GPUs of that compute capability, or what stands in for it beside speculative decoding."""
    assert context.family is not None
    backend = context.family.attention_backend.get(str(major))
    width, algorithm = declared.value("speculative_eagle_topk"), declared.value("speculative_algorithm")
    tree = width is not None and (int(width) != 1 or declared.value("page_size") not in (None, 1))
    # On Blackwell the width must be given; that of DFLASH is always 1.
    unsaid = backend == "trtllm_mha" and width is None and algorithm is not None and str(algorithm).upper() != "DFLASH"
    return "flashinfer" if backend in _ONE_DRAFT_ONLY and (tree or unsaid) else backend


def expected_backends(context: Context, declared: Declared, overridden: bool) -> dict[str, str]:
    """Base and decode backend as the engine will choose them; a name that is not known is left out.

    ``overridden``: the engine applies its own Hopper set, which fills in a decode backend.
    """
    assert context.gpu is not None
    assert context.gpu.compute_capability is not None
    capability = context.gpu.compute_capability
    base = declared.value("attention_backend")
    decode = declared.value("decode_attention_backend")
    prefill = declared.value("prefill_attention_backend")
    if overridden and base is None and decode is None:
        decode = str(_the_set()["decode_attention_backend"])
    if base is None and declared.value("enable_deterministic_inference"):
        base = "flashinfer" if capability.major in (10, 12) else "fa3"
    if prefill is not None and prefill == decode:
        base = prefill
    if base is None and context.family is not None:
        base = _default(context, declared, capability.major)
    if base == "fa3" and declared.value("kv_cache_dtype") == "fp8_e5m2":
        base = (
            "triton"  # of fp8, fa3 reads fp8_e4m3 alone (arg_groups/overrides.py, _attention_backend_fa3_fp8_fallback)
        )
    found = {"attention_backend": base, "decode_attention_backend": decode or base}
    return {name: backend for name, backend in found.items() if backend is not None}
