"""Conditions that a profile's settings may name: each answers None when it holds, else why it does not."""

from __future__ import annotations

from collections.abc import Callable

from vlm_operator.resolve.context import Context, Declared
from vlm_operator.resolve.ranks import running_share

IMAGE_CACHES = ("SGLANG_VLM_CACHE_SIZE_MB", "mm_preprocess_cache_size_mb")
LEGACY_TRANSPORT = "SGLANG_USE_CUDA_IPC_TRANSPORT"
ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
FALSE_WORDS = {"0", "false", "no", "n", "off", "f"}


def images_seen_once(context: Context, declared: Declared) -> str | None:
    """The declared traffic does not repeat images."""
    return "the same images come back (workload.images.reuse: Repeated)" if context.images_repeat else None


def one_node(context: Context, declared: Declared) -> str | None:
    """One node serves a whole copy of the model: a CUDA IPC handle means nothing on another."""
    if context.one_node:
        return None
    return (
        f"{context.spec.multinode.node_count} nodes serve one copy, and CUDA IPC cannot cross nodes: "
        "the engine would refuse to start"
    )


def no_image_cache(context: Context, declared: Declared) -> str | None:
    """No cache keeps images: the engine drops CUDA IPC silently when one does."""
    for name in IMAGE_CACHES:
        if name in context.choices.referenced_env:
            return f"{name} is set from outside the spec, so a cache may keep images, which rules CUDA IPC out"
        value = declared.value(name)
        if value is not None and int(value) > 0:
            return f"{name} {value} keeps images in a cache, and the engine then takes CUDA IPC back"
    return None


def declines_cuda_ipc(context: Context) -> tuple[str, str] | None:
    """(path, reason) of a user's choice that rules CUDA IPC out, in whatever spelling; None where there is none."""
    choices = context.choices
    legacy = choices.settings.get(LEGACY_TRANSPORT)
    if legacy is not None and _is_false(legacy.value):
        return legacy.path, f"{LEGACY_TRANSPORT}={legacy.value} declines CUDA IPC"
    for name in ALLOCATOR_VARIABLES:
        value = choices.env.get(name) or str(choices.get(name) or "")
        if _expandable_segments(value):
            return "spec.engine.env", (
                f"{name} turns on the allocator's expandable_segments, whose memory cannot be shared by CUDA IPC "
                "in most containers"
            )
    if choices.get("image_processor_backend") == "pil":
        path = choices.settings["image_processor_backend"].path
        return path, "image_processor_backend pil makes features on the CPU, so there is nothing for CUDA IPC to move"
    return None


def _expandable_segments(allocator: str) -> bool:
    for item in allocator.split(","):
        key, _, value = item.partition(":")
        if key.strip() == "expandable_segments" and value.strip().lower() == "true":
            return True
    return False


def cuda_ipc_works(context: Context, declared: Declared) -> str | None:
    """Nothing that the user chose rules CUDA IPC out."""
    declined = declines_cuda_ipc(context)
    return None if declined is None else declined[1]


def travels_by_cuda_ipc(declared: Declared) -> bool:
    """Whether the engine is told to use CUDA IPC, by its flag or by the older variable."""
    transport = declared.value("mm_feature_transport")
    legacy = declared.value(LEGACY_TRANSPORT)
    return transport == "cuda_ipc" or (transport is None and legacy is not None and not _is_false(legacy))


def _is_false(value: object) -> bool:
    return str(value).strip().lower() in FALSE_WORDS


def cuda_ipc_planned(context: Context, declared: Declared) -> str | None:
    """Image features travel by CUDA IPC."""
    if travels_by_cuda_ipc(declared):
        return None
    return "no CUDA IPC is planned, so there is no pool to size"


def attention_backend_free(context: Context, declared: Declared) -> str | None:
    """The user chose no attention backend that decides decode too."""
    if context.choices.get("attention_backend") is not None:
        return f"attention_backend {context.choices.get('attention_backend')} is the user's, and decides decode too"
    return None


def running_limit_known(context: Context, declared: Declared) -> str | None:
    """The number of running requests is limited by the user or the workload."""
    if declared.value("max_running_requests") is None:
        return "workload.concurrency is not declared, so the running limit is the engine's"
    return None


def running_limit_at_most(context: Context, declared: Declared, limit: int) -> str | None:
    """The number of requests that run on one rank is at most ``limit``."""
    running = running_share(context, declared)
    if running is None or running <= limit:
        return None
    return f"{running} running requests are more than {limit}, up to which the graph was widened and measured"


# Since then the engine gives a prompt a higher priority than its answer (mem_cache/radix_cache.py), by which it evicts.
ANSWERS_FIRST_SINCE = "0.5.20"


def answers_have_priorities(context: Context, declared: Declared) -> str | None:
    """The engine tells answers from prompts when it evicts by priority."""
    if context.since(ANSWERS_FIRST_SINCE):
        return None
    return f"{context.engine_name()} gives prompts and answers one priority, so it would evict as without"


GRAPH_SETTINGS = (
    "cuda_graph_bs_decode",
    "cuda_graph_config",
    "cuda_graph_backend_decode",
    "disable_decode_cuda_graph",
    "disable_cuda_graph",
)


def decode_graph_free(context: Context, declared: Declared) -> str | None:
    """The user decided nothing else about the decode graph."""
    name = next((n for n in GRAPH_SETTINGS if context.choices.get(n) is not None), None)
    return None if name is None else f"{name} is the user's, and decides the decode graph"


_PLAIN: dict[str, Callable[[Context, Declared], str | None]] = {
    f.__name__: f
    for f in (
        images_seen_once,
        one_node,
        no_image_cache,
        cuda_ipc_works,
        cuda_ipc_planned,
        attention_backend_free,
        running_limit_known,
        decode_graph_free,
        answers_have_priorities,
    )
}
_LIMITED: dict[str, Callable[[Context, Declared, int], str | None]] = {"running_limit_at_most": running_limit_at_most}

WITH_LIMIT = frozenset(_LIMITED)
"""Conditions that are written with a number: ``{running_limit_at_most: 512}``."""
NAMES = frozenset(_PLAIN) | WITH_LIMIT


def unmet(context: Context, declared: Declared, needs: list[str | dict[str, int]]) -> str | None:
    """The reason of the first of ``needs`` that does not hold, or None. Raises KeyError for a condition unknown here."""
    for need in needs:
        if isinstance(need, str):
            reason = _PLAIN[need](context, declared)
        else:
            (name, limit), *_ = need.items()
            reason = _LIMITED[name](context, declared, limit)
        if reason is not None:
            return reason
    return None
