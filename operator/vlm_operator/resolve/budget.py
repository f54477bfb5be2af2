"""How one device's memory is shared out: weights, reserve, feature pool, KV cache; and what does not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from vlm_api.plan import Finding, Severity
from vlm_operator import memory
from vlm_operator.facts.types import ModelFacts
from vlm_operator.resolve.context import Context, Declared
from vlm_operator.resolve.splits import MOST_DEVICES, works

DEFAULT_INPUT_TOKENS = 1024
DEFAULT_OUTPUT_TOKENS = 256
# The share of what weights and reserve leave that the KV cache keeps, however many images are in flight: without it
# nothing decodes. A choice of ours, not a measurement.
KV_SHARE = 0.5
# What the engine keeps for embeddings when nobody says otherwise (SGLANG_VLM_CACHE_SIZE_MB).
ENGINE_EMBEDDING_CACHE_MIB = 100


@dataclass(frozen=True)
class Budget:
    """The sum for one device in MiB, without the feature pool. None where something is not known."""

    device_mib: int | None
    weights_mib: int | None
    reserved_mib: int | None
    embedding_cache_mib: int
    kv_token_bytes: int | None
    request_tokens: int
    """Tokens of one declared request: text in, images, text out."""
    requests: int | None
    """Requests that run at once, where limited."""
    activations_mib: int | None = None
    """What the engine would leave for activations and graphs at least."""
    most_tokens: int | None = None
    """Tokens that the KV cache may hold, where the user limits them (max_total_tokens)."""
    offloaded_mib: int = 0
    """Weights that are kept in the host's memory (cpu_offload_gb), which weights_mib does not count."""

    @property
    def free_mib(self) -> int | None:
        """What weights, reserve and embedding cache leave for pool and KV cache; None when unknown."""
        if self.device_mib is None or self.weights_mib is None or self.reserved_mib is None:
            return None
        return self.device_mib - self.weights_mib - self.reserved_mib - self.embedding_cache_mib

    def kv_mib(self, requests: int) -> int:
        """KV cache of ``requests`` whole requests; 0 when a token's size is not known."""
        return memory.round_up(requests * self.request_tokens * (self.kv_token_bytes or 0) / memory.MIB, 1)

    @property
    def pool_limit_mib(self) -> int | None:
        """The most that a feature pool may take; None when unknown."""
        if self.free_mib is None:
            return None
        share = int(self.free_mib * KV_SHARE)
        kept = share if self.requests is None or self.kv_token_bytes is None else min(self.kv_mib(self.requests), share)
        return (self.free_mib - kept) // memory.POOL_GRANULE_MIB * memory.POOL_GRANULE_MIB

    def sum(self) -> str:
        """The known parts in words, for messages."""
        parts = [("device", self.device_mib), ("weights", self.weights_mib), ("reserved", self.reserved_mib)]
        said = ", ".join(f"{name} {mib:,} MiB" for name, mib in parts if mib is not None)
        return said or "nothing is known"


def budget(context: Context, declared: Declared) -> Budget:
    """The memory of one device as the settings declared so far share it out."""
    spec, gpu = context.spec, context.gpu
    tensor, pipeline = spec.parallelism.tensor, spec.parallelism.pipeline
    device = gpu.memory_mib if gpu is not None else None
    chunk, graph = memory.engine_capacity_defaults(device, tensor)
    chunk = _number(declared.value("chunked_prefill_size"), chunk)
    limit = declared.value("max_running_requests")
    graph = _number(declared.value("cuda_graph_max_bs_decode"), min(graph, int(limit)) if limit else graph)
    fraction = declared.value("mem_fraction_static")
    reserved, activations = None, None
    if device is not None:
        activations = math.ceil(
            memory.activations_mib(device, chunked_prefill=chunk, decode_graph=graph, tensor=tensor, pipeline=pipeline)
        )
        share = (
            float(fraction)
            if fraction is not None
            else memory.static_fraction(
                device,
                chunked_prefill=chunk,
                decode_graph=graph,
                tensor=tensor,
                pipeline=pipeline,
                vision_hidden=context.model.vision_hidden_size,
            )
        )
        reserved = max(device - int(device * share), 0)
    workload = spec.workload
    images = context.image.tokens * workload.images.per_request if context.image else 0
    kv_bytes = 1 if str(declared.value("kv_cache_dtype") or "").startswith("fp8") else 2
    cache = declared.value("SGLANG_VLM_CACHE_SIZE_MB")
    weights = memory.weights_mib(_quantized(context.model, declared), tensor * pipeline)
    offloaded = min(_offload_mib(declared), weights or 0) if context.cuda else 0
    most_tokens = declared.value("max_total_tokens")
    return Budget(
        device_mib=device,
        weights_mib=None if weights is None else weights - offloaded,
        activations_mib=activations,
        most_tokens=int(most_tokens) if most_tokens and context.cuda else None,
        offloaded_mib=offloaded,
        reserved_mib=reserved,
        embedding_cache_mib=_number(cache, ENGINE_EMBEDDING_CACHE_MIB) if context.cuda else 0,
        kv_token_bytes=memory.kv_bytes_per_token(context.model, tensor, pipeline, kv_bytes),
        request_tokens=(workload.input_tokens or DEFAULT_INPUT_TOKENS)
        + images
        + (workload.output_tokens or DEFAULT_OUTPUT_TOKENS),
        requests=int(limit) if limit else None,
    )


# Quantisation while loading -> bytes of a weight, whatever the files hold. MXFP8 has a byte for 32 weights as their scale,
# NVFP4 one for 16 weights of half a byte each.
LOADED_BYTES = {"fp8": 1.0, "w8a8_fp8": 1.0, "w8a8_int8": 1.0, "mxfp8": 1 + 1 / 32, "nvfp4_online": 0.5 + 1 / 16}


def _quantized(model: ModelFacts, declared: Declared) -> ModelFacts:
    bytes_each = LOADED_BYTES.get(str(declared.value("quantization")))
    if bytes_each is not None:
        return replace(model, bytes_per_parameter=min(model.bytes_per_parameter, bytes_each))
    return model


def _offload_mib(declared: Declared) -> int:
    """Weights of each rank that stay in the host's memory: ``cpu_offload_gb`` counts GiB (utils/offloader.py)."""
    return int(float(declared.value("cpu_offload_gb") or 0) * 1024)


# Host copies of KV cache, as a multiple of the device's (mem_cache/kv_cache_builder.py), where no size is given.
HICACHE_RATIO = 2.0


def host_cache_mib(declared: Declared, kv_mib: int) -> int:
    """Pinned host memory of one rank for the hierarchical cache; 0 without it. ``hicache_size`` counts GB."""
    if not declared.value("enable_hierarchical_cache"):
        return 0
    size = int(declared.value("hicache_size") or 0)
    if size > 0:
        return math.ceil(size * 1e9 / memory.MIB)
    return math.ceil(kv_mib * float(declared.value("hicache_ratio") or HICACHE_RATIO))


def _number(value: Any, default: int) -> int:
    return default if value is None or int(value) < 0 else int(value)


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
