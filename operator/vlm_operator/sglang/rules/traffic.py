"""What follows from the declared traffic, and that the engine accepts images at all."""

from collections.abc import Iterator
from typing import Any

from vlm_api.plan import Setting, Source
from vlm_operator.sglang import memory
from vlm_operator.sglang.budget import budget
from vlm_operator.sglang.context import Context, Declared, applied, left
from vlm_operator.sglang.defaults import EMBEDDING_CACHE, ROWS
from vlm_operator.sglang.profiles.trial import as_profiled
from vlm_operator.sglang.ranks import attention_groups


def running_limit(context: Context, declared: Declared) -> Iterator[Setting]:
    """As many requests run at once as are declared to be in flight; of models with states, as many as those have room for; if
    they are very many, up to what the KV cache holds.

    The engine keeps a row of ``context_length`` numbers for each, in memory that its sum does not count
    (mem_cache/memory_pool.py, ReqToTokenPool): 1 MiB with 262,144 tokens. By default it has at least 2,048 rows.
    """
    name, rule = "max_running_requests", "workload.running_limit"
    concurrency = context.spec.workload.concurrency
    if concurrency is None:
        yield left(name, rule, "workload.concurrency is not declared")
        return
    said, groups = f"workload.concurrency is {concurrency}", attention_groups(context, declared)
    states, kv = (None, None) if context.held is None else (context.held.states, context.held.kv)
    limit, reason = concurrency, f"{said}, so that many run at once"
    if states is not None and states * groups < concurrency:
        limit = max(states, 1) * groups
        reason = f"{said}, and memory holds the states of about {limit} requests, so that many run at once"
    elif kv is not None and concurrency > ROWS and kv * groups < concurrency:
        limit = max(kv * groups, ROWS)
        reason = (
            f"{said}, of which the KV cache holds about {kv * groups}; each running request needs up to 1 MiB outside the KV "
            f"cache, so the limit is capped at max({kv * groups}, {ROWS})"
        )
    elif kv is not None:
        reason = f"{said}, and the KV cache holds about {kv * groups} of them: as many run at once as have room there"
    yield applied(name, limit, Source.WORKLOAD, rule, reason)


def embedding_cache(context: Context, declared: Declared) -> Iterator[Setting]:
    """Repeated images need the embedding cache, which the engine would turn off on large Hopper GPUs.

    It gets at most what weights, reserve and a KV cache leave: images that do not fit are encoded again.
    """
    if not (context.images_repeat and context.cuda):
        return
    least, needed = int(context.engine.default(EMBEDDING_CACHE)), embeddings_mib(context)
    size, reason = least, "the engine's own size, since the size of the images is unknown"
    if needed is not None:
        total = budget(context, as_profiled(context, declared))
        room = None if total.free_mib is None else total.free_mib + total.embedding_cache_mib
        size = max(needed if room is None else min(needed, _whole_granules(room - total.kept_for_kv_mib(room))), least)
        assert context.in_flight is not None
        reason = (
            f"{context.in_flight.token_sum()} x {context.model.embedding_values_per_token:,} bf16 values need "
            f"{needed:,} MiB"
        )
        if size < needed:
            reason = (
                f"the embedding cache is capped at {size:,} MiB: {reason}, but of {total.sum()} only {max(room or 0, 0):,} MiB "
                "are left and the KV cache needs its part. Images that do not fit in it are encoded again"
            )
    yield applied(
        EMBEDDING_CACHE,
        size,
        Source.WORKLOAD,
        "workload.embedding_cache",
        f"images repeat (workload.images.reuse: Repeated), so their embeddings are kept: {reason}",
        "at least the engine's 100 MiB (multimodal embedding cache of SGLang)",
    )


def embeddings_mib(context: Context) -> int | None:
    """MiB of the embeddings of all images and videos in flight; None if something about them is unknown."""
    flight, values = context.in_flight, context.model.embedding_values_per_token
    if flight is None or values is None:
        return None
    return memory.round_up(flight.tokens * values * 2 / memory.MIB, memory.POOL_GRANULE_MIB)


def _whole_granules(mib: int) -> int:
    return mib // memory.POOL_GRANULE_MIB * memory.POOL_GRANULE_MIB


def enforced_limits(context: Context, declared: Declared) -> Iterator[Setting]:
    """``images.enforce``: the engine refuses more images than declared, and scales larger ones down."""
    if not context.spec.workload.images.enforce:
        return
    for name, value, reason in image_limits(context):
        rule = "workload.enforce"
        if value is None:
            yield left(name, rule, "the image's size or its processing is unknown")
        elif not context.knows(name):
            yield left(name, rule, f"{context.engine_name()} has no such flag")
        else:
            yield applied(name, value, Source.WORKLOAD, rule, f"workload.images.enforce: {reason}")


def image_limits(context: Context) -> tuple[tuple[str, dict[str, Any] | None, str], ...]:
    """(setting, value or None if unknown, reason) of what enforces the declared images."""
    images, videos = media_per_request(context).values()
    limit, reason = {"image": images, "video": videos}, f"at most {images} images and {videos or 'no'} videos a request"
    return (
        ("limit_mm_data_per_request", limit, reason),
        ("mm_process_config", _process_config(context), "larger images are scaled down to the declared size"),
    )


def media_per_request(context: Context) -> dict[str, int]:
    """How many images and videos a declared request has, by the engine's names for them."""
    workload = context.spec.workload
    return {"image": workload.images.per_request, "video": workload.videos.per_request if workload.videos else 0}


def _process_config(context: Context) -> dict[str, Any] | None:
    if context.image is None or context.family is None or context.family.images is None:
        return None
    return context.family.images.enforcing(context.image)


MULTIMODAL = "enable_multimodal"
MULTIMODAL_EVIDENCE = "mm_disabled_models in SGLang's configs/model_config.py"


def vision_on(context: Context, declared: Declared) -> Iterator[Setting]:
    """``enable_multimodal`` for models whose vision the engine would turn off."""
    architecture = context.model.architecture
    if MULTIMODAL in declared or not context.knows(MULTIMODAL) or architecture not in context.engine.vision_off:
        return
    reason = f"the engine turns the vision of {architecture} off by itself, and then accepts no images"
    yield applied(MULTIMODAL, True, Source.WORKLOAD, "workload.vision_on", reason, MULTIMODAL_EVIDENCE)
