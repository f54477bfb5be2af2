"""What follows from the declared traffic."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Finding, Setting, Severity, Source
from vlm_operator import memory
from vlm_operator.engines.faults import has_fault, mended
from vlm_operator.resolve.budget import ENGINE_EMBEDDING_CACHE_MIB, budget, request_tokens
from vlm_operator.resolve.conditions import travels_by_cuda_ipc
from vlm_operator.resolve.context import Context, Declared, applied, left

ENGINE_POOL_MIB = 1024
# The part of what the engine reserves for activations and graphs that copies of queued images may take. Ours, not measured.
COPIES_SHARE = 0.25


def running_limit(context: Context, declared: Declared) -> Iterator[Setting]:
    """As many requests run at once as are declared to be in flight."""
    name, rule = "max_running_requests", "workload.running_limit"
    concurrency = context.spec.workload.concurrency
    if concurrency is None:
        yield left(name, rule, "workload.concurrency is not declared")
    else:
        yield applied(
            name, concurrency, Source.WORKLOAD, rule, f"workload.concurrency is {concurrency}, so that many run at once"
        )


def embedding_cache(context: Context, declared: Declared) -> Iterator[Setting]:
    """Repeated images need the embedding cache, which the engine would turn off on large Hopper GPUs."""
    if not (context.images_repeat and context.cuda):
        return
    name, rule = "SGLANG_VLM_CACHE_SIZE_MB", "workload.embedding_cache"
    images, image = images_in_flight(context), context.image
    values = context.model.embedding_values_per_token
    size, reason = ENGINE_EMBEDDING_CACHE_MIB, "the engine's own size, since the images' is not known"
    if images is not None and image is not None and values is not None:
        needed = memory.round_up(images * image.tokens * values * 2 / memory.MIB, memory.POOL_GRANULE_MIB)
        size = max(size, needed)
        reason = f"{images} images of {image.tokens} tokens x {values:,} bf16 values need {needed:,} MiB"
    yield applied(
        name,
        size,
        Source.WORKLOAD,
        rule,
        f"images come back (workload.images.reuse: Repeated), so their embeddings are kept: {reason}",
        "at least the engine's 100 MiB (multimodal embedding cache of SGLang)",
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


def feature_pool(
    context: Context, declared: Declared, rule: str, source: Source, steps: list[tuple[int, int]], evidence: str | None
) -> Iterator[Setting | Finding]:
    """The pool for CUDA IPC features: the larger of the engine's step and what the images in flight need.

    ``steps``: (running requests from which on, MiB). It takes at most what weights, reserve and a KV cache leave; beyond
    that it is capped, with a Warning that gives the sum. Never below the engine's step.
    """
    name = "SGLANG_MM_FEATURE_CACHE_MB"
    running = int(declared.value("max_running_requests") or 0)
    default = context.engine.default(name) or 0
    step = max(default, *(mib for least, mib in steps if running >= least))
    images, image = images_in_flight(context), context.image
    if images is None or image is None:
        missing = "concurrency" if images is None else "image size"
        reason = (
            f"the engine's step for {running or 'an undeclared number of'} running requests; no {missing} to size it by"
        )
        yield applied(name, step, source, rule, reason, evidence)
        return
    needed = memory.pool_for_images_mib(images, image.bytes)
    wanted = max(step, needed)
    formula = f"{images:,} images x {image.bytes / memory.MIB:.3f} MiB x {memory.FRAGMENTATION} = {needed:,} MiB"
    reason = f"{formula}; the engine's step is {step:,} MiB, and the larger counts"
    total = budget(context, declared)
    limit = total.pool_limit_mib
    if limit is None or wanted <= max(limit, step):
        yield applied(name, wanted, source, rule, reason, evidence)
        return
    size = max(limit, step)
    held = memory.images_in_pool(size, image.bytes)
    message = (
        f"the image pool is capped at {size:,} MiB: {formula} are needed, but of {total.sum()} only {total.free_mib:,} MiB "
        f"are left, and the KV cache needs its part. The pool holds {held:,} of {images:,} images; the others go through the CPU"
    )
    yield applied(name, size, source, rule, f"{reason}; {message}", evidence)
    requests = held // context.spec.workload.images.per_request
    fewer = f"with workload.concurrency {requests}, " if requests else ""
    yield Finding(
        severity=Severity.WARNING,
        reason="FeaturePoolCapped",
        message=f"{message}. All would fit {fewer}with smaller images, or on a GPU with more memory",
        path="spec.workload.images",
    )


def pool_for_chosen_transport(context: Context, declared: Declared) -> Iterator[Setting | Finding]:
    """Where the user chose CUDA IPC outside a profile, its pool is sized as well."""
    if not travels_by_cuda_ipc(declared) or "SGLANG_MM_FEATURE_CACHE_MB" in declared:
        return
    if context.profile is None:
        yield from feature_pool(
            context,
            declared,
            "workload.feature_pool",
            Source.WORKLOAD,
            [(0, ENGINE_POOL_MIB)],
            "SGLang's default of 1 GiB",
        )


def encoder_data_parallel(context: Context, declared: Declared) -> Iterator[Setting]:
    """With tensor parallelism every rank copies each queued image out of the pool as it arrives, into memory that no
    budget has; with the vision encoder spread by data instead, an image stays in the pool until it is encoded.
    """
    name, rule = "mm_enable_dp_encoder", "workload.encoder_data_parallel"
    images, image, tensor = images_in_flight(context), context.image, context.spec.parallelism.tensor
    if tensor == 1 or not travels_by_cuda_ipc(declared) or images is None or image is None:
        return
    reserved = budget(context, declared).reserved_mib
    if reserved is None:
        return
    copies = images * image.bytes // memory.MIB
    tally = f"{images} queued images are {copies:,} MiB of copies on each of {tensor} ranks, and {reserved:,} MiB are reserved"
    evidence = (
        "SGLang 0.5.23, managers/schedule_batch.py: features are rebuilt on receipt unless the encoder is data parallel"
    )
    if copies <= reserved * COPIES_SHARE:
        yield left(name, rule, f"{tally}: they fit", evidence)
    elif has_fault(context.engine.version, "encoder_pool_fallback"):
        step = f"{context.engine_name()} would end once the pool is full (mended in {mended('encoder_pool_fallback')})"
        yield left(name, rule, f"{tally}: they may not fit, but with a data parallel encoder {step}", evidence)
    elif not context.knows(name):
        yield left(name, rule, f"{tally}: they may not fit, but {context.engine_name()} has no such flag", evidence)
    else:
        yield applied(name, True, Source.WORKLOAD, rule, f"{tally}: they stay in the pool instead", evidence)
