"""The conditions that a profile's settings may name under ``needs``: each returns None if it holds, else why not."""

from collections.abc import Callable

from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.ranks import running_share
from vlm_operator.sglang.transport import declines_cuda_ipc, travels_by_cuda_ipc

IMAGE_CACHES = ("SGLANG_VLM_CACHE_SIZE_MB", "mm_preprocess_cache_size_mb")


def images_seen_once(context: Context, declared: Declared) -> str | None:
    """The declared traffic does not repeat images."""
    return "the same images come back (workload.images.reuse: Repeated)" if context.images_repeat else None


def one_node(context: Context, declared: Declared) -> str | None:
    """One node serves the whole replica: a CUDA IPC handle means nothing on another."""
    if context.one_node:
        return None
    return (
        f"{context.spec.multinode.node_count} nodes serve one replica, and CUDA IPC cannot cross nodes: "
        "the engine would refuse to start"
    )


def no_image_cache(context: Context, declared: Declared) -> str | None:
    """No cache keeps images: with one, the engine drops CUDA IPC silently."""
    for name in IMAGE_CACHES:
        if name in context.choices.referenced_env:
            return (
                f"{name} comes from a Secret, ConfigMap or field, so a cache may keep images, which rules CUDA IPC out"
            )
        value = declared.value(name)
        if value is not None and int(value) > 0:
            return f"{name} {value} keeps images in a cache, and the engine then does not use CUDA IPC"
    return None


def cuda_ipc_works(context: Context, declared: Declared) -> str | None:
    """Nothing that the user chose rules CUDA IPC out."""
    declined = declines_cuda_ipc(context)
    return None if declined is None else declined[1]


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
    return f"{running} running requests are more than {limit}, the largest graph that was measured"


def answers_have_priorities(context: Context, declared: Declared) -> str | None:
    """The engine distinguishes answers from prompts when it evicts by priority."""
    if context.engine.does("answers_evicted_first"):
        return None
    return f"{context.engine_name()} gives prompts and answers the same priority, so eviction would not change"


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
