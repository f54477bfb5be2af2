"""Whether the model fits into the memory of its devices, and what is tight there."""

from __future__ import annotations

import math

from vlm_api.plan import Finding, Severity
from vlm_operator import memory
from vlm_operator.resolve.budget import Budget
from vlm_operator.resolve.context import Context, Declared
from vlm_operator.resolve.nearest import counted, what_would_fit
from vlm_operator.resolve.ranks import request_groups


def fit_findings(context: Context, declared: Declared, total: Budget, pool_mib: int) -> list[Finding]:
    """Errors and notes about memory: what cannot start is refused here, before a GPU pod does."""
    if not context.cuda or context.gpu is None:
        return []
    if total.device_mib is None or total.weights_mib is None:
        return [_not_checked(total)]
    loading = _while_loading(context, total, pool_mib)
    if loading is not None and loading.reason != "LoadingNotChecked":
        return [loading]
    left = total.kv_beside_mib(pool_mib)
    assert left is not None
    if left >= max(total.kv_mib(1), 1):
        unsure = [] if loading is None else [loading]
        return [
            *unsure,
            *_queueing(context, declared, total, left),
            *_little_reserve(context, total),
            *_not_counted(context),
        ]
    need = total.kv_mib(1) + pool_mib * total.pool_times
    if context.gpu.source == "spec":
        return [_only_a_least(total, need)]
    assert total.free_mib is not None
    devices = context.spec.parallelism.tensor * context.spec.parallelism.pipeline
    twice = " (counted twice, as the engine does)" if pool_mib and total.pool_times > 1 else ""
    parts = (
        f"{total.sum()} each, embedding cache {total.embedding_cache_mib} MiB, image pool {pool_mib:,} MiB{twice} and a KV "
        f"cache of at least {total.kv_mib(1):,} MiB need {total.device_mib - total.free_mib + need:,} MiB of "
        f"{total.device_mib:,} MiB"
    )
    instead = what_would_fit(context, declared, pool_mib)
    if left + total.unsure_mib(pool_mib) >= max(total.kv_mib(1), 1):
        return [
            Finding(
                severity=Severity.WARNING,
                reason="MemoryTight",
                message=f"weights may leave no KV cache on {counted(devices)}, and the engine would end at its start: {parts} "
                f"with allowances on the safe side for CUDA's contexts; raise mem_fraction_static a little, or {instead}",
                path="spec.parallelism.tensor",
            ),
            *_not_counted(context),
        ]
    return [
        Finding(
            severity=Severity.ERROR,
            reason="ModelDoesNotFit",
            message=f"the model does not fit on {counted(devices)}: {parts}; {instead}",
            path="spec.parallelism.tensor",
        )
    ]


def _while_loading(context: Context, total: Budget, pool_mib: int) -> Finding | None:
    """An Error where the files' weights have no room, although they would once they are quantised; a Warning where nobody
    says what the files hold: they may be quantised already."""
    assert total.device_mib is not None
    need, gpu = total.loading_need_mib(pool_mib), context.gpu
    quantization = context.choices.settings.get("quantization")
    sure = need - total.contexts_mib // 2  # as in Budget.unsure_mib
    if quantization is None or (total.loading_mib or 0) <= (total.weights_mib or 0) or sure <= total.device_mib:
        return None
    if gpu is not None and gpu.source == "spec":
        return _min_memory(total, need, "the weights of the files while they are loaded")
    devices = context.spec.parallelism.tensor * context.spec.parallelism.pipeline
    on = f"{'on each of' if devices > 1 else 'on'} {counted(devices)}"
    quantised = f"quantization {quantization.value} makes weights smaller only when all are loaded"
    total_need = f"with CUDA's contexts and the image pool {need:,} MiB of {total.device_mib:,} MiB"
    step = "take a checkpoint that is quantised (spec.model.uri), or more devices"
    if context.model.evidence is None:
        return Finding(
            severity=Severity.WARNING,
            reason="LoadingNotChecked",
            message=f"{quantised}, and nothing is known of the files: if they are not quantised themselves they are "
            f"{total.loading_mib:,} MiB {on}, {total_need}, and the engine runs out of memory as it loads them; then {step}",
            path=quantization.path,
        )
    return Finding(
        severity=Severity.ERROR,
        reason="ModelDoesNotFit",
        message=f"{quantised}, and as the files hold them they are {total.loading_mib:,} MiB {on}: {total_need}; {step}",
        path=quantization.path,
    )


def _queueing(context: Context, declared: Declared, total: Budget, kv_mib: int) -> list[Finding]:
    """Tells how many declared requests the KV cache holds, where that is fewer than are declared."""
    token_mib = (total.kv_token_bytes or 0) * total.request_tokens / memory.MIB
    if total.most_tokens is not None:
        kv_mib = min(kv_mib, int(total.most_tokens * (total.kv_token_bytes or 0) / memory.MIB))
    if total.requests is None or not token_mib or kv_mib >= total.requests * token_mib:
        return []
    held = max(int(kv_mib / token_mib), 1)
    groups, concurrency = request_groups(context, declared), context.spec.workload.concurrency
    # The running limit may be below what is declared.
    wanted = max(total.requests, math.ceil((concurrency or 0) / groups))
    of_each, on_each = (f" of each of {groups} data ranks", " on each") if groups > 1 else ("", "")
    return [
        Finding(
            severity=Severity.INFO,
            reason="KvCacheHoldsFewer",
            message=f"the KV cache{of_each} of {kv_mib:,} MiB holds about {held:,} requests of {total.request_tokens:,} tokens, "
            f"and {wanted:,} are declared to run at once{on_each}: the others wait. Declare what really runs at once, "
            "or use more GPUs, fp8 (engine.settings.kv_cache_dtype: fp8_e4m3) or more replicas",
            path="spec.workload.concurrency",
        )
    ]


# Settings that bring weights into the GPU's memory of which nothing is known beforehand.
NOT_COUNTED = {
    "speculative_draft_model_path": "the draft model's weights and cache",
    "lora_paths": "LoRA adapters",
    "attn_dp_size": "attention weights, which each group of ranks has whole,",
    "enable_dp_attention": "attention weights, which each group of ranks has whole,",
}


def _not_counted(context: Context) -> list[Finding]:
    found = [
        (context.choices.settings[name], what) for name, what in NOT_COUNTED.items() if name in context.choices.settings
    ]
    return [
        Finding(
            severity=Severity.INFO,
            reason="MemoryNotCounted",
            message=f"{what} take the GPU's memory too and are not in the sum: where it is tight, lower mem_fraction_static "
            "or concurrency",
            path=choice.path,
        )
        for choice, what in found
    ]


def _little_reserve(context: Context, total: Budget) -> list[Finding]:
    """A user's mem_fraction_static that leaves less than the engine would leave for activations and graphs at least."""
    choice, least = context.choices.settings.get("mem_fraction_static"), total.activations_mib
    if choice is None or least is None or total.slack_mib is None or total.slack_mib >= least:
        return []
    assert total.device_mib is not None
    most = math.floor((1 - least / total.device_mib) * 1000) / 1000
    return [
        Finding(
            severity=Severity.WARNING,
            reason="ReserveTooSmall",
            message=f"mem_fraction_static {choice.value} leaves {total.slack_mib:,} MiB of {total.device_mib:,} MiB for "
            f"activations and CUDA graphs, and the engine by itself leaves at least {least:,} MiB: it can run out of memory "
            f"while it serves; take {most} or less, or leave it to the engine",
            path=choice.path,
        )
    ]


def _only_a_least(total: Budget, need: int) -> Finding:
    """No node is there yet, and the spec's memory is the least that one must have: that it is too little refuses nothing."""
    wanted = (total.weights_mib or 0) + (total.reserved_mib or 0) + total.embedding_cache_mib + need
    return _min_memory(total, wanted, "weights, reserve, image pool and one request")


def _min_memory(total: Budget, wanted_mib: int, what: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        reason="MinMemoryTooLow",
        message=f"a GPU of {total.device_mib:,} MiB, which hardware.minMemoryMiB allows, could not run this: {what} need "
        f"{wanted_mib:,} MiB; raise minMemoryMiB, so that no such GPU is chosen",
        path="spec.hardware.minMemoryMiB",
    )


def _not_checked(total: Budget) -> Finding:
    missing = "the GPU's memory" if total.device_mib is None else "the model's size"
    step = (
        "install GPU feature discovery, label the node with nvidia.com/gpu.memory, or, where no label tells of its GPU at all, "
        "say spec.hardware.minMemoryMiB"
        if total.device_mib is None
        else "say spec.model.parametersBillion"
    )
    return Finding(
        severity=Severity.INFO,
        reason="MemoryNotChecked",
        message=f"{missing} is not known, so nothing says whether the model fits; {step}",
        path="spec.hardware.minMemoryMiB" if total.device_mib is None else "spec.model.parametersBillion",
    )
