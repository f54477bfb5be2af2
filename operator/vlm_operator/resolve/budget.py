"""How one device's memory is shared out: weights, reserve, feature pool, KV cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from vlm_operator import memory
from vlm_operator.facts.types import ModelFacts
from vlm_operator.resolve.context import Context, Declared

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


def request_tokens(context: Context) -> int:
    """Tokens of one declared request: text in, images, text out."""
    workload = context.spec.workload
    images = context.image.tokens * workload.images.per_request if context.image else 0
    return (workload.input_tokens or DEFAULT_INPUT_TOKENS) + images + (workload.output_tokens or DEFAULT_OUTPUT_TOKENS)


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
        request_tokens=request_tokens(context),
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
