"""The pool of image features on the first GPU: whether there is room for it, its size, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Finding, Setting, Severity, Source
from vlm_operator import memory
from vlm_operator.engines.faults import has_fault, mended
from vlm_operator.resolve.budget import ENGINE_POOL_MIB, Budget, budget
from vlm_operator.resolve.conditions import FALSE_WORDS, LEGACY_TRANSPORT, travels_by_cuda_ipc, unmet
from vlm_operator.resolve.context import Context, Declared, applied, left
from vlm_operator.resolve.profiled import as_profiled
from vlm_operator.resolve.rules.workload import images_in_flight

POOL = "SGLANG_MM_FEATURE_CACHE_MB"
BALANCE_CHECK = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"
# The engine ends at its start where a tensor rank's device has less than 0.9 of what another has free
# (distributed/bootstrap.py, _check_tp_memory_balance), and the pool is on the first alone. Half of that tenth is left for what
# else may differ: the second CUDA context there, and the driver's part.
BALANCED_SHARE = 0.05
# The part of what the engine reserves for activations and graphs that copies of queued images may take. Ours, not measured.
COPIES_SHARE = 0.25


def no_room_for_a_pool(context: Context, declared: Declared) -> Iterator[Setting | Finding]:
    """Where weights leave too little for a useful pool beside the KV cache, images go through the CPU from the start."""
    item = (
        next((s for s in context.profile.settings if s.name == "mm_feature_transport"), None)
        if context.profile
        else None
    )
    names = ("mm_feature_transport", LEGACY_TRANSPORT, POOL)
    if item is None or any(declared.get(name) is not None for name in names) or unmet(context, declared, item.needs):
        return
    total = budget(context, as_profiled(context, declared, "cuda_ipc"))
    limit, least = total.pool_limit_mib, least_useful_mib(context)
    if limit is None or limit >= least:
        return
    told = context.knows("mm_feature_transport")
    name, value = ("mm_feature_transport", "cpu") if told else (LEGACY_TRANSPORT, 0)
    if not context.knows(name):
        return
    assert total.free_mib is not None
    reason = (
        f"{total.sum()} leave {max(total.free_mib, 0):,} MiB for image pool and KV cache: of a pool of {least:,} MiB only "
        f"{limit:,} would fit, so image features go through the CPU and the KV cache gets the rest"
    )
    yield applied(name, value, Source.WORKLOAD, "workload.no_room_for_a_pool", reason)
    yield Finding(
        severity=Severity.WARNING,
        reason="NoRoomForFeaturePool",
        message=f"{reason}. CUDA IPC would be faster: it takes a GPU with more memory, more GPUs, or smaller weights",
        path="spec.parallelism.tensor",
    )


def least_useful_mib(context: Context) -> int:
    """The smallest pool worth its room: the engine's own default, or less where all images in flight need less."""
    images, image = images_in_flight(context), context.image
    if images is None or image is None:
        return ENGINE_POOL_MIB
    return min(ENGINE_POOL_MIB, memory.pool_for_images_mib(images, image.bytes))


def feature_pool(
    context: Context, declared: Declared, rule: str, source: Source, steps: list[tuple[int, int]], evidence: str | None
) -> Iterator[Setting | Finding]:
    """The pool for CUDA IPC features: the larger of the engine's step and what the images in flight need.

    ``steps``: (running requests from which on, MiB). It takes at most what weights, reserve and a KV cache leave; beyond
    that it is capped, with a finding that gives the sum.
    """
    running = int(declared.value("max_running_requests") or 0)
    default = context.engine.default(POOL) or 0
    step = max(default, *(mib for least, mib in steps if running >= least))
    images, image = images_in_flight(context), context.image
    if images is None or image is None:
        missing = "concurrency" if images is None else "image size"
        wanted, needed = step, None
        reason = (
            f"the engine's step for {running or 'an undeclared number of'} running requests; no {missing} to size it by"
        )
    else:
        needed = memory.pool_for_images_mib(images, image.bytes)
        wanted = max(step, needed)
        formula = f"{images:,} images x {image.bytes / memory.MIB:.3f} MiB x {memory.FRAGMENTATION} = {needed:,} MiB"
        reason = f"{formula}; the engine's step is {step:,} MiB, and the larger counts"
    total = budget(context, declared)
    limit, why = _limit(context, declared, total)
    if limit is None or wanted <= limit:
        yield applied(POOL, wanted, source, rule, reason, evidence)
        return
    # The engine makes no pool of 0.
    size = max(limit if needed is None else min(limit, needed), memory.POOL_GRANULE_MIB)
    if images is None or image is None or needed is None or size >= needed:
        holds = "" if needed is None else "; it holds all images in flight"
        message = f"the image pool has {size:,} MiB instead of the engine's step of {step:,} MiB: {why}{holds}"
        yield applied(POOL, size, source, rule, f"{reason}; {message}", evidence)
        yield Finding(severity=Severity.INFO, reason="FeaturePoolCapped", message=message, path="spec.workload.images")
        return
    held = memory.images_in_pool(size, image.bytes)
    message = (
        f"the image pool is capped at {size:,} MiB: {formula} are needed, but {why}. The pool holds {held:,} of {images:,} "
        "images; the others go through the CPU"
    )
    yield applied(POOL, size, source, rule, f"{reason}; {message}", evidence)
    requests = held // context.spec.workload.images.per_request
    fewer = f"with workload.concurrency {requests}, " if requests else ""
    yield Finding(
        severity=Severity.WARNING,
        reason="FeaturePoolCapped",
        message=f"{message}. All would fit {fewer}with smaller images, or on a GPU with more memory",
        path="spec.workload.images",
    )


def _limit(context: Context, declared: Declared, total: Budget) -> tuple[int | None, str]:
    """(the most that the pool may take or None when unknown, why it is no more)."""
    limit = total.pool_limit_mib
    twice = ", the engine counts the pool twice," if total.pool_times > 1 else ""
    why = f"of {total.sum()} only {total.free_mib or 0:,} MiB are left{twice} and the KV cache needs its part"
    if total.device_mib is None or not _unbalanced_is_refused(context, declared):
        return limit, why
    balanced = int(total.device_mib * BALANCED_SHARE) // memory.POOL_GRANULE_MIB * memory.POOL_GRANULE_MIB
    if limit is not None and limit <= balanced:
        return limit, why
    return balanced, f"a larger one makes the engine end at its start while {BALANCE_CHECK} is on"


def _unbalanced_is_refused(context: Context, declared: Declared) -> bool:
    """Whether the engine's check of the tensor ranks' memory is on and cannot or may not be turned off."""
    if context.spec.parallelism.tensor == 1:
        return False
    setting = declared.get(BALANCE_CHECK)
    if setting is not None:
        return str(setting.value).strip().lower() not in FALSE_WORDS
    return not context.knows(BALANCE_CHECK)


def tensor_ranks_unbalanced(context: Context, declared: Declared) -> Iterator[Setting | Finding]:
    """With a large pool on the first GPU alone, the engine's check that tensor ranks have as much memory free is in the way."""
    gpu, size = context.gpu, declared.value(POOL)
    if context.spec.parallelism.tensor == 1 or size is None or not travels_by_cuda_ipc(declared):
        return
    if gpu is None or gpu.memory_mib is None or int(size) <= gpu.memory_mib * BALANCED_SHARE:
        return
    why = (
        f"the image pool's {int(size):,} MiB are on the first GPU alone, and the engine ends at its start where one tensor rank "
        "has less than 0.9 of the memory that another has free"
    )
    if not _unbalanced_is_refused(context, declared):
        if BALANCE_CHECK not in declared:
            yield applied(
                BALANCE_CHECK,
                0,
                Source.WORKLOAD,
                "workload.tensor_ranks_unbalanced",
                why,
                "SGLang 0.5.23, distributed/bootstrap.py: _check_tp_memory_balance",
            )
        return
    path = context.choices.settings[POOL].path if POOL in context.choices.settings else "spec.workload.images"
    yield Finding(
        severity=Severity.WARNING,
        reason="TensorRanksUnbalanced",
        message=f"{why}, which {BALANCE_CHECK} asks for; set it to 0, or take a smaller pool",
        path=path,
    )


def pool_for_chosen_transport(context: Context, declared: Declared) -> Iterator[Setting | Finding]:
    """Where the user chose CUDA IPC outside a profile, its pool is sized as well."""
    if not travels_by_cuda_ipc(declared) or POOL in declared:
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
    reserved = budget(context, declared).slack_mib
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
