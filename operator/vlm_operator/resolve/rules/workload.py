"""What follows from the declared traffic."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Finding, Setting, Severity, Source
from vlm_operator import memory
from vlm_operator.resolve.budget import ENGINE_EMBEDDING_CACHE_MIB, budget, request_tokens
from vlm_operator.resolve.context import Context, Declared, applied, left
from vlm_operator.resolve.profiled import as_profiled
from vlm_operator.resolve.ranks import attention_groups

# Requests for which the engine keeps rows where nobody limits them (mem_cache/kv_cache_configurator.py, resolve_max_num_reqs).
ENGINE_ROWS = 2048


def running_limit(context: Context, declared: Declared) -> Iterator[Setting]:
    """As many requests run at once as are declared to be in flight, up to what the KV cache holds where that is very many.

    The engine keeps a row of ``context_length`` numbers for each, in memory that its sum has not (mem_cache/memory_pool.py,
    ReqToTokenPool): 1 MiB with 262,144 tokens. By itself it makes 2,048 rows at least.
    """
    name, rule = "max_running_requests", "workload.running_limit"
    concurrency = context.spec.workload.concurrency
    if concurrency is None:
        yield left(name, rule, "workload.concurrency is not declared")
        return
    limit, reason = concurrency, f"workload.concurrency is {concurrency}, so that many run at once"
    total = budget(context, declared) if context.cuda and concurrency > ENGINE_ROWS else None
    if total is not None and total.free_mib is not None and (one := total.kv_mib(1)):
        held = max(total.free_mib, 0) // one * attention_groups(context, declared)
        if held < concurrency:
            limit = max(held, ENGINE_ROWS)
            reason = (
                f"workload.concurrency is {concurrency}, of which the KV cache holds about {held}; each that may run takes up to "
                "1 MiB beside it, so no more than that or the engine's own least number"
            )
    yield applied(name, limit, Source.WORKLOAD, rule, reason)


def embedding_cache(context: Context, declared: Declared) -> Iterator[Setting | Finding]:
    """Repeated images need the embedding cache, which the engine would turn off on large Hopper GPUs.

    It takes at most what weights, reserve and a KV cache leave: images without room in it are encoded again.
    """
    if not (context.images_repeat and context.cuda):
        return
    name, rule = "SGLANG_VLM_CACHE_SIZE_MB", "workload.embedding_cache"
    images, image = images_in_flight(context), context.image
    values = context.model.embedding_values_per_token
    size, reason = ENGINE_EMBEDDING_CACHE_MIB, "the engine's own size, since the images' is not known"
    capped = None
    if images is not None and image is not None and values is not None:
        needed = memory.round_up(images * image.tokens * values * 2 / memory.MIB, memory.POOL_GRANULE_MIB)
        total = budget(context, as_profiled(context, declared))
        room = None if total.free_mib is None else total.free_mib + total.embedding_cache_mib
        most = (
            needed
            if room is None
            else (room - total.kept_for_kv_mib(room)) // memory.POOL_GRANULE_MIB * memory.POOL_GRANULE_MIB
        )
        size = max(min(needed, most), ENGINE_EMBEDDING_CACHE_MIB)
        reason = f"{images} images of {image.tokens} tokens x {values:,} bf16 values need {needed:,} MiB"
        if size < needed:
            capped = (
                f"the cache of image embeddings is capped at {size:,} MiB: {reason}, but of {total.sum()} only "
                f"{max(room or 0, 0):,} MiB are left and the KV cache needs its part. Images without room in it are encoded again"
            )
    yield applied(
        name,
        size,
        Source.WORKLOAD,
        rule,
        f"images come back (workload.images.reuse: Repeated), so their embeddings are kept: {capped or reason}",
        "at least the engine's 100 MiB (multimodal embedding cache of SGLang)",
    )
    if capped is not None and name not in context.choices.settings:
        yield Finding(
            severity=Severity.INFO,
            reason="EmbeddingCacheCapped",
            message=f"{capped}. More would fit with fewer or smaller images, or on a GPU with more memory",
            path="spec.workload.images",
        )


def declared_limits(context: Context, declared: Declared) -> Iterator[Setting | Finding]:
    """``images.enforce``: the engine refuses more images than declared, and scales larger ones down."""
    images = context.spec.workload.images
    if not images.enforce:
        return
    for name, value, reason in (
        (
            "limit_mm_data_per_request",
            {"image": images.per_request},
            f"workload.images.enforce: at most {images.per_request} images a request",
        ),
        (
            "mm_process_config",
            _process_config(context),
            "workload.images.enforce: larger images are scaled down to the declared size",
        ),
    ):
        rule = "workload.enforce"
        if value is None:
            yield left(name, rule, "the image's size or its processing is not known")
        elif not context.knows(name):
            yield left(name, rule, f"{context.engine_name()} has no such flag")
            yield Finding(
                severity=Severity.WARNING,
                reason="ImagesNotEnforced",
                message=f"{context.engine_name()} has no --{name.replace('_', '-')}; use 0.5.9 or later to enforce images",
                path="spec.workload.images.enforce",
            )
        else:
            yield applied(name, value, Source.WORKLOAD, rule, reason)


def _process_config(context: Context) -> dict[str, object] | None:
    if context.image is None or context.family is None:
        return None
    edges = {
        "shortest_edge": context.family.image_processing.min_pixels,
        "longest_edge": context.image.width * context.image.height,
    }
    return {"image": {"size": edges}}


def consistent(context: Context, declared: Declared) -> Iterator[Finding]:
    """Findings for numbers in the spec that work against each other."""
    tokens = request_tokens(context)
    length = declared.value("context_length")
    if length is not None and int(length) < tokens:
        yield Finding(
            severity=Severity.WARNING,
            reason="ContextTooShort",
            message=f"a declared request has {tokens:,} tokens with its images, and context_length is "
            f"{length}: the engine refuses such requests; raise context_length or lower the workload's tokens",
            path=context.choices.settings["context_length"].path,
        )
    limits, images = context.choices.settings.get("limit_mm_data_per_request"), context.spec.workload.images
    allowed = limits.value.get("image") if limits is not None else None
    if limits is not None and allowed is not None and allowed < images.per_request:
        yield Finding(
            severity=Severity.WARNING,
            reason="ImagesRefused",
            message=f"declared requests have {images.per_request} images and the engine is told to take {allowed}: it refuses "
            "such requests; raise the limit, or lower workload.images.perRequest",
            path=limits.path,
        )
    most = declared.value("max_total_tokens")
    if most is not None and context.cuda and int(most) < tokens:
        yield Finding(
            severity=Severity.WARNING,
            reason="ContextTooShort",
            message=f"a declared request has {tokens:,} tokens with its images, and max_total_tokens limits the "
            f"whole KV cache to {most}: no such request is served; raise it, or leave it to the engine",
            path=context.choices.settings["max_total_tokens"].path,
        )
    scaling, running = context.spec.scaling, declared.value("max_running_requests")
    target = scaling.target_in_flight if scaling else None
    if target is not None and running is not None and target > int(running):
        yield Finding(
            severity=Severity.WARNING,
            reason="ScalesLate",
            message=f"scaling.targetInFlight is {target} and a replica runs {running} requests at once: another replica "
            f"comes only when {target - int(running)} requests already wait; lower it to {running} or below",
            path="spec.scaling.targetInFlight",
        )


def images_in_flight(context: Context) -> int | None:
    """Images that may wait or run at once; None while the concurrency is not declared."""
    workload = context.spec.workload
    return None if workload.concurrency is None else workload.concurrency * workload.images.per_request
