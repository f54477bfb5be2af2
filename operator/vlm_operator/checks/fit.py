"""Whether the model fits into the memory of its devices, and what is tight there."""

import math
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from vlm_api.plan import Finding, Severity, error, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.facts.model.lookup import weights_in_name
from vlm_operator.placement.nearest import counted, what_would_fit
from vlm_operator.sglang import memory as sizes
from vlm_operator.sglang.budget import Budget
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.ranks import request_groups

# Settings that bring weights of an unknown size into the GPU's memory.
NOT_COUNTED: Final = {
    "speculative_draft_model_path": "the draft model's weights and cache",
    "lora_paths": "LoRA adapters",
    "attn_dp_size": "attention weights, which each group of ranks has completely,",
    "enable_dp_attention": "attention weights, which each group of ranks has completely,",
}


class Fit(IntEnum):
    """How well a model fits on a GPU; less is better."""

    FITS = 0
    UNSURE = 1
    """It is unknown, or within the uncertainty of the estimate."""
    DOES_NOT_FIT = 2


def fit(context: Context, declared: Declared, budget: Budget, pool_mib: int) -> Fit:
    """How well the model fits on the context's GPU."""
    if budget.device_mib is None or budget.weights_mib is None:
        return Fit.UNSURE
    findings = list(_capacity(context, declared, budget, pool_mib))
    if any(f.severity is Severity.ERROR for f in findings):
        return Fit.DOES_NOT_FIT
    unsure = FindingReason.MEMORY_TIGHT, FindingReason.LOADING_NOT_CHECKED
    return Fit.UNSURE if any(f.reason in unsure for f in findings) else Fit.FITS


def memory(plan: CheckInput) -> Iterator[Finding]:
    """Errors and notes about memory: what cannot start is refused here, before a GPU pod does."""
    if plan.context.cuda and plan.context.gpu is not None:
        yield from _capacity(plan.context, plan.declared, plan.budget, plan.pool_mib)


def _capacity(context: Context, declared: Declared, total: Budget, pool_mib: int) -> Iterator[Finding]:
    if total.device_mib is None or total.weights_mib is None:
        yield _not_checked(total)
        yield from _by_its_name(context, total)
        return
    loading = _while_loading(context, total, pool_mib)
    if loading is not None and loading.reason != FindingReason.LOADING_NOT_CHECKED:
        yield loading
        return
    left, one = total.kv_beside_mib(pool_mib), max(total.kv_mib(1), 1)
    assert left is not None
    if left >= one:
        if loading is not None:
            yield loading
        yield from _queueing(context, declared, total, left)
        yield from _little_reserve(context, total)
        yield from _not_counted(context)
    elif context.gpu is not None and context.gpu.source == "spec":
        # No node is known yet, and the spec's memory is a minimum: that it is too low refuses nothing.
        need = total.kv_mib(1) + pool_mib * total.pool_times
        wanted = total.weights_mib + (total.reserved_mib or 0) + total.embedding_cache_mib + need
        yield _min_memory(total, wanted, "weights, reserve, feature pool and one request")
    else:
        yield from _no_room(context, declared, total, pool_mib, sure=left + total.unsure_mib(pool_mib) < one)


def _no_room(context: Context, declared: Declared, total: Budget, pool_mib: int, *, sure: bool) -> Iterator[Finding]:
    assert total.free_mib is not None
    assert total.device_mib is not None
    need = total.kv_mib(1) + pool_mib * total.pool_times
    devices = context.spec.parallelism.tensor * context.spec.parallelism.pipeline
    twice = " (counted twice, as the engine does)" if pool_mib and total.pool_times > 1 else ""
    parts = (
        f"{total.sum()} each, embedding cache {total.embedding_cache_mib} MiB, feature pool {pool_mib:,} MiB{twice} and a KV "
        f"cache of at least {total.kv_mib(1):,} MiB need {total.device_mib - total.free_mib + need:,} MiB of "
        f"{total.device_mib:,} MiB"
    )
    instead = what_would_fit(context, declared, pool_mib)
    if sure:
        yield error(
            FindingReason.MODEL_DOES_NOT_FIT,
            f"the model does not fit on {counted(devices)}: {parts}; {instead}",
            "spec.parallelism.tensor",
        )
        return
    yield warning(
        FindingReason.MEMORY_TIGHT,
        f"weights may leave no KV cache on {counted(devices)}, and then the engine would not start: {parts}, with cautious "
        f"estimates for CUDA's contexts; raise mem_fraction_static a little, or {instead}",
        "spec.parallelism.tensor",
    )
    yield from _not_counted(context)


def _while_loading(context: Context, total: Budget, pool_mib: int) -> Finding | None:
    """An Error if the files' weights have no room although they fit once they are quantized; a Warning if it is unknown
    what the files hold, since they may be quantized already."""
    assert total.device_mib is not None
    need, gpu = total.loading_need_mib(pool_mib), context.gpu
    quantization = context.choices.settings.get("quantization")
    least = need - total.contexts_mib // 2  # as in Budget.unsure_mib
    if quantization is None or (total.loading_mib or 0) <= (total.weights_mib or 0) or least <= total.device_mib:
        return None
    if gpu is not None and gpu.source == "spec":
        return _min_memory(total, need, "the weights of the files while they are loaded")
    devices = context.spec.parallelism.tensor * context.spec.parallelism.pipeline
    on = f"{'on each of' if devices > 1 else 'on'} {counted(devices)}"
    quantized = f"quantization {quantization.value} makes weights smaller only after all are loaded"
    total_need = f"with CUDA's contexts and the feature pool {need:,} MiB of {total.device_mib:,} MiB"
    step = "use a quantized checkpoint (spec.model.uri), or more devices"
    if context.model.evidence is None:
        return warning(
            FindingReason.LOADING_NOT_CHECKED,
            f"{quantized}, and the files are unknown: if they are not quantized themselves they are {total.loading_mib:,} MiB "
            f"{on}, {total_need}, and the engine runs out of memory while it loads them; then {step}",
            quantization.path,
        )
    return error(
        FindingReason.MODEL_DOES_NOT_FIT,
        f"{quantized}, and in the files they are {total.loading_mib:,} MiB {on}: {total_need}; {step}",
        quantization.path,
    )


def _queueing(context: Context, declared: Declared, total: Budget, left_mib: int) -> Iterator[Finding]:
    """How many declared requests run at once, if states or KV cache hold fewer than are declared."""
    held, groups = context.held or total.held(left_mib), request_groups(context, declared)
    # The user's own limit may be below what is declared.
    wanted = total.requests
    if wanted is not None and context.choices.get("max_running_requests") is None:
        wanted = max(wanted, math.ceil((context.spec.workload.concurrency or 0) / groups))
    if wanted is None or held.requests is None or wanted <= held.requests:
        return
    of_each, on_each = (f" of each of {groups} data ranks", " on each") if groups > 1 else ("", "")
    declared_at_once = (
        f"{wanted:,} are declared to run at once{on_each}, so the others wait. Declare how many really run at once"
    )
    if held.states is not None and (held.kv is None or held.states < held.kv):
        each = total.slots_each * total.slot_bytes / sizes.MIB
        yield warning(
            FindingReason.STATES_HOLD_FEWER,
            f"layers without a KV cache keep a state for each running request, {each:,.0f} MiB with its copies; the "
            f"states{of_each} get {total.states_mib(left_mib):,} of {left_mib:,} MiB, which holds about {held.states:,} "
            f"requests, and {declared_at_once}, or use more GPUs, more replicas, engine.settings.mamba_full_memory_ratio "
            "above 0.9, or mamba_ssm_dtype: bfloat16 if its quality suffices",
            "spec.workload.concurrency",
        )
        return
    yield info(
        FindingReason.KV_CACHE_HOLDS_FEWER,
        f"the KV cache{of_each} of {total.kv_part_mib(left_mib):,} MiB holds about {held.kv:,} requests of "
        f"{total.request_tokens:,} tokens, and {declared_at_once}, or use more GPUs, fp8 (engine.settings.kv_cache_dtype: "
        "fp8_e4m3) or more replicas",
        "spec.workload.concurrency",
    )


def _not_counted(context: Context) -> Iterator[Finding]:
    for name, what in NOT_COUNTED.items():
        if (choice := context.choices.settings.get(name)) is not None:
            yield info(
                FindingReason.MEMORY_NOT_COUNTED,
                f"{what} take GPU memory too and are not counted: if memory runs out, lower mem_fraction_static or "
                "concurrency",
                choice.path,
            )


def _little_reserve(context: Context, total: Budget) -> Iterator[Finding]:
    """A user's mem_fraction_static that leaves less for activations and graphs than the engine's own minimum."""
    choice, least = context.choices.settings.get("mem_fraction_static"), total.activations_mib
    if choice is None or least is None or total.slack_mib is None or total.slack_mib >= least:
        return
    assert total.device_mib is not None
    most = math.floor((1 - least / total.device_mib) * 1000) / 1000
    yield warning(
        FindingReason.RESERVE_TOO_SMALL,
        f"mem_fraction_static {choice.value} leaves {total.slack_mib:,} MiB of {total.device_mib:,} MiB for activations and "
        f"CUDA graphs, and by default the engine leaves at least {least:,} MiB, so it can run out of memory while it serves; "
        f"use {most} or less, or leave it to the engine",
        choice.path,
    )


def _min_memory(total: Budget, wanted_mib: int, what: str) -> Finding:
    return warning(
        FindingReason.MIN_MEMORY_TOO_LOW,
        f"a GPU of {total.device_mib:,} MiB, which hardware.minMemoryMiB allows, is too small: {what} need {wanted_mib:,} MiB; "
        "raise minMemoryMiB, so that no such GPU is chosen",
        "spec.hardware.minMemoryMiB",
    )


def _by_its_name(context: Context, total: Budget) -> Iterator[Finding]:
    """A Warning if weights of the size in the model's name have no room, where nothing else tells the size."""
    named = weights_in_name(context.spec.model)
    if total.device_mib is None or named is None or total.weights_mib is not None:
        return
    if context.choices.get("quantization") is not None or context.choices.get("cpu_offload_gb") is not None:
        return
    size, weights = named
    devices = context.spec.parallelism.tensor * context.spec.parallelism.pipeline
    each = math.ceil(weights / devices / sizes.MIB)
    if each > total.device_mib:
        yield warning(
            FindingReason.NAME_SAYS_TOO_LARGE,
            f"the model's name says {size}, and such weights are at least {each:,} MiB on each of {counted(devices)} with "
            f"{total.device_mib:,} MiB: set spec.model.parametersBillion to have it checked, or use more devices",
            "spec.parallelism.tensor",
        )


def _not_checked(total: Budget) -> Finding:
    if total.device_mib is None:
        missing, path = "the GPU's memory", "spec.hardware.minMemoryMiB"
        step = (
            "install GPU feature discovery, label the node with nvidia.com/gpu.memory, or, if no label describes its GPU, set "
            "spec.hardware.minMemoryMiB"
        )
    else:
        missing, path = "the model's size", "spec.model.parametersBillion"
        step = "set spec.model.parametersBillion"
    return info(
        FindingReason.MEMORY_NOT_CHECKED,
        f"{missing} is unknown, so it is not checked whether the model fits; {step}",
        path,
    )
