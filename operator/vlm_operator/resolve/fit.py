"""Whether the model fits into the memory of its devices, with the nearest plan that would, and what is tight there."""

from __future__ import annotations

import math
from dataclasses import replace

from vlm_api.plan import Finding, Severity
from vlm_operator import memory
from vlm_operator.facts.types import ModelFacts
from vlm_operator.resolve.budget import Budget, budget
from vlm_operator.resolve.context import Context, Declared
from vlm_operator.resolve.splits import MOST_DEVICES, works


def fit_findings(context: Context, declared: Declared, total: Budget, pool_mib: int) -> list[Finding]:
    """Errors and notes about memory: what cannot start is refused here, before a GPU pod does."""
    if not context.cuda or context.gpu is None:
        return []
    if total.device_mib is None or total.weights_mib is None:
        return [_not_checked(total)]
    free = total.free_mib
    assert free is not None
    need = total.kv_mib(1) + pool_mib
    if free >= max(need, 1):
        return [*_queueing(total, free - pool_mib), *_little_reserve(context, total), *_not_counted(context)]
    if context.gpu.source == "spec":
        return [_only_a_least(total, need)]
    devices = context.spec.parallelism.tensor * context.spec.parallelism.pipeline
    return [
        Finding(
            severity=Severity.ERROR,
            reason="ModelDoesNotFit",
            message=(
                f"the model does not fit on {_counted(devices)}: {total.sum()} each, "
                f"embedding cache {total.embedding_cache_mib} MiB, image pool {pool_mib:,} MiB and a KV cache of at "
                f"least {total.kv_mib(1):,} MiB need {total.device_mib - free + need:,} MiB of {total.device_mib:,} MiB; "
                f"{_what_would_fit(context, declared, pool_mib)}"
            ),
            path="spec.parallelism.tensor",
        )
    ]


def _queueing(total: Budget, kv_mib: int) -> list[Finding]:
    """Tells how many declared requests the KV cache holds, where that is fewer than are declared."""
    token_mib = (total.kv_token_bytes or 0) * total.request_tokens / memory.MIB
    if total.most_tokens is not None:
        kv_mib = min(kv_mib, int(total.most_tokens * (total.kv_token_bytes or 0) / memory.MIB))
    if total.requests is None or not token_mib or kv_mib >= total.requests * token_mib:
        return []
    held = max(int(kv_mib / token_mib), 1)
    return [
        Finding(
            severity=Severity.INFO,
            reason="KvCacheHoldsFewer",
            message=f"the KV cache of {kv_mib:,} MiB holds about {held:,} requests of {total.request_tokens:,} tokens, and "
            f"{total.requests:,} are declared to run at once: the others wait. Declare what really runs at once, "
            "or use more GPUs, fp8 (engine.settings.kv_cache_dtype: fp8_e5m2) or more replicas",
            path="spec.workload.concurrency",
        )
    ]


# Settings that bring weights into the GPU's memory of which nothing is known beforehand.
NOT_COUNTED = {"speculative_draft_model_path": "the draft model's weights and cache", "lora_paths": "LoRA adapters"}


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
    if choice is None or least is None or total.reserved_mib is None or total.reserved_mib >= least:
        return []
    assert total.device_mib is not None
    most = math.floor((1 - least / total.device_mib) * 1000) / 1000
    return [
        Finding(
            severity=Severity.WARNING,
            reason="ReserveTooSmall",
            message=f"mem_fraction_static {choice.value} leaves {total.reserved_mib:,} MiB of {total.device_mib:,} MiB for "
            f"activations and CUDA graphs, and the engine by itself leaves at least {least:,} MiB: it can run out of memory "
            f"while it serves; take {most} or less, or leave it to the engine",
            path=choice.path,
        )
    ]


def _what_would_fit(context: Context, declared: Declared, pool_mib: int) -> str:
    """The nearest plans that would fit: more devices, and fewer with fp8 weights."""

    def least(model: ModelFacts) -> int | None:
        """The smallest number of tensor ranks, not below those declared, on which the model fits and splits evenly."""
        first = context.spec.parallelism.tensor
        return next(
            (n for n in range(first, MOST_DEVICES + 1) if _fits(replace(context, model=model), declared, n, pool_mib)),
            None,
        )

    as_it_is, one_byte = least(context.model), None
    if context.model.bytes_per_parameter > 1:
        one_byte = least(replace(context.model, bytes_per_parameter=1.0))
    fp8 = "with fp8 weights (engine.settings.quantization: fp8)"
    if as_it_is is None and one_byte is None:
        return "no number of such devices is enough: fewer or smaller images, or GPUs with more memory, would fit"
    if as_it_is is None:
        return f"it would fit on {_ranks(context, one_byte or 0)} {fp8}"
    said = f"it would fit on {_ranks(context, as_it_is)}"
    if one_byte is not None and one_byte < as_it_is:
        said += f", or on {_ranks(context, one_byte)} {fp8}"
    return said


def _fits(context: Context, declared: Declared, tensor: int, pool_mib: int) -> bool:
    """Whether the model fits and splits evenly with that many tensor ranks, everything else as declared."""
    if not works(context, declared, tensor):
        return False
    spec = context.spec
    parallelism = spec.parallelism.model_copy(update={"tensor": tensor})
    service = context.service.model_copy(update={"spec": spec.model_copy(update={"parallelism": parallelism})})
    total = budget(replace(context, service=service), declared)
    return total.free_mib is not None and total.free_mib >= max(total.kv_mib(1) + pool_mib, 1)


def _ranks(context: Context, tensor: int) -> str:
    """``4 devices (parallelism.tensor: 4)``, with the nodes that these take where one has too few."""
    parallel, gpu = context.spec.parallelism, context.gpu
    needed = tensor * parallel.pipeline * parallel.data
    said = f"parallelism.tensor: {tensor}"
    if gpu is not None and gpu.devices and needed > gpu.devices * context.spec.multinode.node_count:
        nodes = next(n for n in range(1, needed + 1) if needed % n == 0 and needed // n <= gpu.devices)
        said += f", multinode.nodeCount: {nodes}"
    return f"{_counted(tensor * parallel.pipeline)} ({said})"


def _counted(devices: int) -> str:
    return f"{devices} device{'s' * (devices > 1)}"


def _only_a_least(total: Budget, need: int) -> Finding:
    """No node is there yet, and the spec's memory is the least that one must have: that it is too little refuses nothing."""
    wanted = (total.weights_mib or 0) + (total.reserved_mib or 0) + total.embedding_cache_mib + need
    return Finding(
        severity=Severity.WARNING,
        reason="MinMemoryTooLow",
        message=f"a GPU of {total.device_mib:,} MiB, which hardware.minMemoryMiB allows, could not run this: weights, "
        f"reserve, image pool and one request need {wanted:,} MiB; raise minMemoryMiB, so that no such GPU is chosen",
        path="spec.hardware.minMemoryMiB",
    )


def _not_checked(total: Budget) -> Finding:
    missing = "the GPU's memory" if total.device_mib is None else "the model's size"
    step = (
        "install GPU feature discovery, or say spec.hardware.minMemoryMiB"
        if total.device_mib is None
        else "say spec.model.parametersBillion"
    )
    return Finding(
        severity=Severity.INFO,
        reason="MemoryNotChecked",
        message=f"{missing} is not known, so nothing says whether the model fits; {step}",
        path="spec.hardware.minMemoryMiB" if total.device_mib is None else "spec.model.parametersBillion",
    )
