"""The feature pool on the first GPU: whether there is room for it, its size, and what follows from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vlm_api.plan import Setting, Source
from vlm_operator.sglang import memory
from vlm_operator.sglang.budget import Budget, budget
from vlm_operator.sglang.context import Context, Declared, applied, left
from vlm_operator.sglang.defaults import POOL, POOL_MIB
from vlm_operator.sglang.profiles.needs import unmet
from vlm_operator.sglang.profiles.trial import as_profiled
from vlm_operator.sglang.transport import FALSE_WORDS, LEGACY_TRANSPORT, travels_by_cuda_ipc

TRANSPORTS = ("mm_feature_transport", LEGACY_TRANSPORT)
NO_ROOM = "workload.no_room_for_a_pool"
BALANCE_CHECK = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"
# The engine does not start if a tensor rank's device has less than 0.9 of what another has free (distributed/bootstrap.py,
# _check_tp_memory_balance), and the pool is on the first alone. Half of that tenth is left for other differences: the second
# CUDA context there, and the driver's part.
BALANCED_SHARE = 0.05
# The part of what the engine reserves for activations and graphs that copies of queued images may take. Ours, not measured.
COPIES_SHARE = 0.25


def no_room_for_pool(context: Context, declared: Declared) -> Iterator[Setting]:
    """If weights leave too little for a useful pool beside the KV cache, images go through the CPU from the start."""
    settings = context.profile.settings if context.profile else []
    item = next((s for s in settings if s.name == "mm_feature_transport"), None)
    if item is None or unmet(context, declared, item.needs):
        return
    if any(declared.get(name) is not None for name in (*TRANSPORTS, POOL)):
        return
    total = budget(context, as_profiled(context, declared, "cuda_ipc"))
    limit, least = total.pool_limit_mib, least_useful_mib(context)
    if limit is None or limit >= least:
        return
    name, value = ("mm_feature_transport", "cpu") if context.knows("mm_feature_transport") else (LEGACY_TRANSPORT, 0)
    if not context.knows(name):
        return
    assert total.free_mib is not None
    reason = (
        f"{total.sum()} leave {max(total.free_mib, 0):,} MiB for feature pool and KV cache: of a pool of {least:,} MiB only "
        f"{limit:,} would fit, so image features go through the CPU and the KV cache gets the rest"
    )
    yield applied(name, value, Source.WORKLOAD, NO_ROOM, reason)


def least_useful_mib(context: Context) -> int:
    """The smallest pool that is worth its memory: the engine's own default, or less if all media in flight need less."""
    flight = context.in_flight
    return POOL_MIB if flight is None else min(POOL_MIB, flight.pool_mib)


@dataclass(frozen=True)
class WantedPool:
    """The pool without a limit."""

    step_mib: int
    """The engine's own step for this many running requests."""
    needed_mib: int | None
    """What all images and videos in flight need; None if their number or size is unknown."""
    reason: str

    @property
    def mib(self) -> int:
        """The larger of the two."""
        return max(self.step_mib, self.needed_mib or 0)


def wanted_pool(context: Context, declared: Declared, steps: Sequence[tuple[int, int]]) -> WantedPool:
    """``steps``: (from this many running requests on, MiB)."""
    running = int(declared.value("max_running_requests") or 0)
    step = max(context.engine.default(POOL) or 0, *(mib for least, mib in steps if running >= least))
    flight = context.in_flight
    if flight is None:
        missing = "concurrency" if context.spec.workload.concurrency is None else "image size"
        what = f"the engine's step for {running or 'an undeclared number of'} running requests"
        return WantedPool(step, None, f"{what}; no {missing} to size it by")
    return WantedPool(
        step, flight.pool_mib, f"{flight.pool_sum()}; the engine's step is {step:,} MiB, and the larger counts"
    )


def steps_of(context: Context, rule: str) -> Sequence[tuple[int, int]]:
    """The steps of the profile's rule with that name; else the engine's default."""
    for profile in context.family.profiles if context.family else []:
        for item in profile.settings:
            if item.name == POOL and f"{profile.name}.{item.rule}" == rule:
                return item.steps
    return [(0, POOL_MIB)]


def feature_pool(
    context: Context, declared: Declared, rule: str, source: Source, evidence: str | None
) -> Iterator[Setting]:
    """The pool for CUDA IPC features: the larger of the engine's step and what the images in flight need, at most what
    weights, reserve and a KV cache leave."""
    wanted = wanted_pool(context, declared, steps_of(context, rule))
    limit, why = _limit(context, declared, budget(context, declared))
    if limit is None or wanted.mib <= limit:
        yield applied(POOL, wanted.mib, source, rule, wanted.reason, evidence)
        return
    # The engine does not create a pool of 0.
    needed = wanted.needed_mib
    size = max(limit if needed is None else min(limit, needed), memory.POOL_GRANULE_MIB)
    flight = context.in_flight
    if flight is None or needed is None or size >= needed:
        holds = "" if flight is None else f"; it holds all {flight.name()} in flight"
        result = (
            f"the feature pool has {size:,} MiB instead of the engine's step of {wanted.step_mib:,} MiB: {why}{holds}"
        )
    else:
        result = (
            f"the feature pool is capped at {size:,} MiB, since {why}. It holds {flight.held(size)}, and the others "
            "go through the CPU"
        )
    yield applied(POOL, size, source, rule, f"{wanted.reason}; {result}", evidence)


def _limit(context: Context, declared: Declared, total: Budget) -> tuple[int | None, str]:
    """(the most that the pool may take or None when unknown, why it is no more)."""
    limit = total.pool_limit_mib
    twice = ", the engine counts the pool twice," if total.pool_times > 1 else ""
    why = f"of {total.sum()} only {total.free_mib or 0:,} MiB are left{twice} and the KV cache needs its part"
    if total.device_mib is None or not imbalance_is_refused(context, declared):
        return limit, why
    balanced = int(total.device_mib * BALANCED_SHARE) // memory.POOL_GRANULE_MIB * memory.POOL_GRANULE_MIB
    if limit is not None and limit <= balanced:
        return limit, why
    return balanced, f"a larger one makes the engine end at its start while {BALANCE_CHECK} is on"


def imbalance_is_refused(context: Context, declared: Declared) -> bool:
    """Whether the engine's check of the tensor ranks' memory is on and cannot or may not be turned off."""
    if context.spec.parallelism.tensor == 1:
        return False
    setting = declared.get(BALANCE_CHECK)
    if setting is not None:
        return str(setting.value).strip().lower() not in FALSE_WORDS
    return not context.knows(BALANCE_CHECK)


def imbalance(context: Context, declared: Declared) -> str | None:
    """Why the engine's check of the tensor ranks' memory fails: the pool is large and on the first GPU alone. None if it
    passes."""
    gpu, size = context.gpu, declared.value(POOL)
    if context.spec.parallelism.tensor == 1 or size is None or not travels_by_cuda_ipc(declared):
        return None
    if gpu is None or gpu.memory_mib is None or int(size) <= gpu.memory_mib * BALANCED_SHARE:
        return None
    return (
        f"the feature pool's {int(size):,} MiB are on the first GPU alone, and the engine does not start if one tensor rank "
        "has less than 0.9 of the memory that another has free"
    )


def tensor_ranks_unbalanced(context: Context, declared: Declared) -> Iterator[Setting]:
    """With a large pool on the first GPU alone, the engine's check that tensor ranks have equal free memory is turned off."""
    why = imbalance(context, declared)
    if why is not None and BALANCE_CHECK not in declared and not imbalance_is_refused(context, declared):
        yield applied(
            BALANCE_CHECK,
            0,
            Source.WORKLOAD,
            "workload.tensor_ranks_unbalanced",
            why,
            "SGLang 0.5.23, distributed/bootstrap.py: _check_tp_memory_balance",
        )


def pool_for_chosen_transport(context: Context, declared: Declared) -> Iterator[Setting]:
    """If the user chose CUDA IPC outside a profile, its pool is sized as well."""
    if travels_by_cuda_ipc(declared) and POOL not in declared and context.profile is None:
        yield from feature_pool(
            context, declared, "workload.feature_pool", Source.WORKLOAD, "SGLang's default of 1 GiB"
        )


def encoder_data_parallel(context: Context, declared: Declared) -> Iterator[Setting]:
    """With tensor parallelism every rank copies each queued image out of the pool as it arrives, into memory that no budget
    counts; with a data parallel vision encoder an image stays in the pool until it is encoded."""
    name, rule = "mm_enable_dp_encoder", "workload.encoder_data_parallel"
    flight, tensor = context.in_flight, context.spec.parallelism.tensor
    if tensor == 1 or not travels_by_cuda_ipc(declared) or flight is None:
        return
    reserved = budget(context, declared).slack_mib
    if reserved is None:
        return
    copies = flight.feature_bytes // memory.MIB
    tally = f"{flight.tally()} in the queue are {copies:,} MiB of copies on each of {tensor} ranks, and {reserved:,} MiB are free"
    evidence = (
        "SGLang 0.5.23, managers/schedule_batch.py: features are rebuilt on receipt unless the encoder is data parallel"
    )
    if copies <= reserved * COPIES_SHARE:
        yield left(name, rule, f"{tally}: they fit", evidence)
    elif fault := context.engine.fault("encoder_pool_fallback"):
        step = f"{context.engine_name()} would end once the pool is full (fixed in {fault.fixed_in})"
        yield left(name, rule, f"{tally}: they may not fit, but with a data parallel encoder {step}", evidence)
    elif not context.knows(name):
        yield left(name, rule, f"{tally}: they may not fit, but {context.engine_name()} has no such flag", evidence)
    else:
        yield applied(name, True, Source.WORKLOAD, rule, f"{tally}: they stay in the pool instead", evidence)
