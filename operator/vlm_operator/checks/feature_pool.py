"""Memory for images on the GPU that is less than was wanted: the feature pool and the embedding cache."""

from collections.abc import Iterator

from vlm_api.plan import Finding, Source, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.sglang.defaults import EMBEDDING_CACHE, POOL
from vlm_operator.sglang.rules import feature_pool as pool
from vlm_operator.sglang.rules import traffic
from vlm_operator.sglang.transport import ON_THE_GPU, transport


def _media_path(plan: CheckInput) -> str:
    """The field of what fills the pool."""
    flight = plan.context.in_flight
    return "spec.workload.images" if flight is None else flight.path()


def room(plan: CheckInput) -> Iterator[Finding]:
    """No useful feature pool fits, so images go through the CPU."""
    for name in pool.TRANSPORTS:
        setting = plan.declared.get(name)
        if setting is not None and setting.applied and setting.rule == pool.NO_ROOM:
            yield warning(
                FindingReason.NO_ROOM_FOR_FEATURE_POOL,
                f"{setting.reason}. CUDA IPC would be faster: for it, use a GPU with more memory, more GPUs, or smaller weights",
                "spec.parallelism.tensor",
            )


def capped(plan: CheckInput) -> Iterator[Finding]:
    """A feature pool below the images in flight (Warning), or only below the engine's step (Info)."""
    context, setting = plan.context, plan.declared.get(POOL)
    if setting is None or not setting.applied or setting.source not in (Source.PROFILE, Source.WORKLOAD):
        return
    wanted = pool.wanted_pool(context, plan.declared, pool.steps_of(context, setting.rule))
    mib = int(setting.value)
    if mib >= wanted.mib:
        return
    if wanted.needed_mib is None or mib >= wanted.needed_mib:
        step = "set a smaller image, lower the concurrency, or use a GPU with more memory to get the whole step"
        yield info(FindingReason.FEATURE_POOL_CAPPED, f"{setting.reason}; {step}", _media_path(plan))
        return
    assert context.in_flight is not None
    requests = context.in_flight.requests_held(mib)
    fewer = f"with workload.concurrency {requests}, " if requests else ""
    yield warning(
        FindingReason.FEATURE_POOL_CAPPED,
        f"{setting.reason}. All would fit {fewer}with smaller {context.in_flight.name()}, or on a GPU with more memory",
        _media_path(plan),
    )


def users(plan: CheckInput) -> Iterator[Finding]:
    """A pool of the user's that holds fewer images than are in flight: it stays, and the other images go through the CPU."""
    context, setting, choice = plan.context, plan.declared.get(POOL), plan.context.choices.settings.get(POOL)
    flight = context.in_flight
    if setting is None or choice is None or setting.source is not Source.USER or flight is None:
        return
    mib, needed = int(setting.value), flight.pool_mib
    if setting.applied and transport(plan.declared) in ON_THE_GPU and mib < needed:
        yield warning(
            FindingReason.FEATURE_POOL_TOO_SMALL,
            f"{POOL} {mib}: a feature pool of {mib:,} MiB holds {flight.held(mib)} "
            f"in flight, and the others go through the CPU; {needed:,} MiB hold all: raise it, or remove it so that it is "
            "computed",
            choice.path,
        )


def balance(plan: CheckInput) -> Iterator[Finding]:
    """A large pool on the first GPU alone, while the engine's check of the tensor ranks' memory stays on."""
    context, declared = plan.context, plan.declared
    why = pool.imbalance(context, declared) if context.tuned else None
    if why is None or not pool.imbalance_is_refused(context, declared):
        return
    choice = context.choices.settings.get(POOL)
    yield warning(
        FindingReason.TENSOR_RANKS_UNBALANCED,
        f"{why}, because {pool.BALANCE_CHECK} is on; set it to 0, or use a smaller pool",
        _media_path(plan) if choice is None else choice.path,
    )


def embedding_cache(plan: CheckInput) -> Iterator[Finding]:
    """A cache of image embeddings that is smaller than the declared images need."""
    setting, needed = plan.declared.get(EMBEDDING_CACHE), traffic.embeddings_mib(plan.context)
    if setting is None or not setting.applied or setting.source is not Source.WORKLOAD or needed is None:
        return
    if int(setting.value) < needed:
        yield info(
            FindingReason.EMBEDDING_CACHE_CAPPED,
            f"{setting.reason}. More would fit with fewer or smaller images, or on a GPU with more memory",
            _media_path(plan),
        )
