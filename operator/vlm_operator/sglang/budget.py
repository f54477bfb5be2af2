"""How one device's memory is shared out: weights, reserve, feature pool, KV cache."""

import math
from dataclasses import dataclass, replace
from typing import Any

from vlm_operator.facts.types import ModelFacts
from vlm_operator.sglang import defaults, memory, states
from vlm_operator.sglang.context import Context, Declared, Held
from vlm_operator.sglang.ranks import attention_groups, request_groups, running_share
from vlm_operator.sglang.transport import ON_THE_GPU, transport

DEFAULT_INPUT_TOKENS = 1024
DEFAULT_OUTPUT_TOKENS = 256
# The share of what weights and reserve leave that the KV cache keeps, however many images are in flight: without it
# nothing decodes. A choice of ours, not a measurement.
KV_SHARE = 0.5


@dataclass(frozen=True)
class Budget:
    """The sum for one device in MiB, without the feature pool. None if something is unknown."""

    device_mib: int | None
    weights_mib: int | None
    reserved_mib: int | None
    """What the engine leaves for activations and graphs, and what CUDA's contexts and NCCL take of its part."""
    embedding_cache_mib: int
    kv_token_bytes: int | None
    request_tokens: int
    requests: int | None
    """Requests that run at once on this device's rank, if limited."""
    slot_bytes: int = 0
    """One state, in models with layers that have no KV cache."""
    slots_each: int = 1
    """States that one running request takes."""
    slots_set: int | None = None
    """States that there are, if the user sets their number."""
    state_share: float | None = 0
    """The part that states get otherwise of what weights and reserve leave; None if they get one for each running request."""
    activations_mib: int | None = None
    """What the engine would leave for activations and graphs at least."""
    slack_mib: int | None = None
    """What it does leave for them: the device's part above ``mem_fraction_static``."""
    contexts_mib: int = 0
    """What CUDA's contexts and NCCL take of the first device."""
    loading_mib: int | None = None
    """Weights on the device while they are loaded: those of the files, if they become smaller only afterwards."""
    most_tokens: int | None = None
    """Tokens that the KV cache may hold, if the user limits them (max_total_tokens)."""
    offloaded_mib: int = 0
    """Weights that are kept in the host's memory (cpu_offload_gb), which weights_mib does not count."""
    pool_times: int = 1
    """How often the engine's sum has the pool, at most."""
    share: float | None = None
    """mem_fraction_static."""
    allowance_mib: int = 0
    """What of the reserve may be free after all: half of the allowances for contexts and NCCL."""

    @property
    def free_mib(self) -> int | None:
        """What weights, reserve and embedding cache leave for pool and KV cache; None if unknown."""
        if self.device_mib is None or self.weights_mib is None or self.reserved_mib is None:
            return None
        return self.device_mib - self.weights_mib - self.reserved_mib - self.embedding_cache_mib

    def kv_mib(self, requests: int) -> int:
        """What KV cache and states of ``requests`` whole requests need; 0 when a token's size is not known."""
        tokens = requests * self.request_tokens * (self.kv_token_bytes or 0)
        # One state more than requests take is made as a filler.
        states = (requests * self.slots_each + 1) * self.slot_bytes
        if self.slot_bytes and self.slots_set is None and self.state_share:
            return memory.round_up(max(tokens / (1 - self.state_share), states / self.state_share) / memory.MIB, 1)
        return memory.round_up((tokens + states) / memory.MIB, 1)

    def states_mib(self, left_mib: int) -> int:
        """What states get of ``left_mib``."""
        if not self.slot_bytes:
            return 0
        if self.slots_set is None and self.state_share is not None:
            return int(left_mib * self.state_share)
        slots = self.slots_set if self.slots_set is not None else self.requests or 1
        return min(memory.round_up((slots + 1) * self.slot_bytes / memory.MIB, 1), left_mib)

    def kv_part_mib(self, left_mib: int) -> int:
        """What the KV cache gets of ``left_mib``."""
        part = left_mib - self.states_mib(left_mib)
        if self.most_tokens is None:
            return part
        return min(part, int(self.most_tokens * (self.kv_token_bytes or 0) / memory.MIB))

    def held(self, left_mib: int) -> Held:
        """How many declared requests ``left_mib`` holds."""
        each = (self.kv_token_bytes or 0) * self.request_tokens
        kv = max(int(self.kv_part_mib(left_mib) * memory.MIB / each), 1) if each else None
        if not self.slot_bytes:
            return Held(kv, None)
        if self.slots_set is None and self.state_share is None:
            return Held(None, max(int((left_mib * memory.MIB - self.slot_bytes) / (each + self.slot_bytes)), 0))
        slots = int(self.states_mib(left_mib) * memory.MIB / self.slot_bytes) - 1
        return Held(kv, max(slots // self.slots_each, 0))

    def kv_beside_mib(self, pool_mib: int) -> int | None:
        """KV cache beside a pool of that size, below 0 if there is no room; None if unknown."""
        return None if self.free_mib is None else self.free_mib - pool_mib * self.pool_times

    def unsure_mib(self, pool_mib: int) -> int:
        """How much more than ``kv_beside_mib`` says there may be: allowances are on the safe side, and a pool that is made
        before the schedulers measure what is free counts its second time only by ``share``."""
        again = pool_mib * (self.pool_times - 1)
        return self.allowance_mib + int(again * (1 - (self.share if self.share is not None else 1)))

    def loading_need_mib(self, pool_mib: int) -> int:
        """MiB of the device that are in use when the last weights are loaded."""
        return (self.loading_mib or 0) + self.contexts_mib + pool_mib

    def kept_for_kv_mib(self, room_mib: int) -> int:
        """What the KV cache keeps of ``room_mib``: enough for the declared requests, up to its share, and never for none."""
        share = int(room_mib * KV_SHARE)
        if self.requests is None or self.kv_token_bytes is None:
            return share
        return max(min(self.kv_mib(self.requests), share), self.kv_mib(1))

    @property
    def pool_limit_mib(self) -> int | None:
        """The most that a feature pool may take, not below 0; None when unknown."""
        if self.free_mib is None:
            return None
        room = (self.free_mib - self.kept_for_kv_mib(self.free_mib)) // self.pool_times
        return max(room // memory.POOL_GRANULE_MIB * memory.POOL_GRANULE_MIB, 0)

    def sum(self) -> str:
        """The known parts in words, for messages."""
        parts = [("device", self.device_mib), ("weights", self.weights_mib), ("reserved", self.reserved_mib)]
        known = ", ".join(f"{name} {mib:,} MiB" for name, mib in parts if mib is not None)
        return known or "nothing is known"


def request_tokens(context: Context) -> int:
    """Tokens of one declared request: text in, images, videos, text out."""
    return _text_tokens(context) + sum(part.count * part.each.kept_tokens for part in context.media)


def request_length(context: Context) -> int:
    """Tokens of one declared request as the engine holds them against the context: the marks around its media too."""
    return _text_tokens(context) + sum(part.count * part.each.prompt_tokens for part in context.media)


def _text_tokens(context: Context) -> int:
    workload = context.spec.workload
    return (workload.input_tokens or DEFAULT_INPUT_TOKENS) + (workload.output_tokens or DEFAULT_OUTPUT_TOKENS)


def budget(context: Context, declared: Declared) -> Budget:
    """The memory of one device as the settings declared so far share it out.

    Where pool and second process matter it is the first device's, which has them: the engine sizes the KV cache of all by
    the one with the least free memory.
    """
    spec, gpu = context.spec, context.gpu
    tensor, pipeline = spec.parallelism.tensor, spec.parallelism.pipeline
    device = gpu.memory_mib if gpu is not None else None
    groups = attention_groups(context, declared)
    pooled = context.cuda and transport(declared) in ON_THE_GPU
    second = memory.SECOND_CONTEXT_MIB if pooled else 0
    reserved, activations, slack, share, contexts, allowance = None, None, None, None, 0, 0
    if device is not None:
        least = _activations(context, declared, device, groups)
        value = declared.value("mem_fraction_static")
        share = (
            float(value)
            if value is not None
            else defaults.static_fraction(device, least, context.model.vision_hidden_size)
        )
        gone = memory.context_mib(device, tensor * pipeline)
        activations, contexts = math.ceil(least), gone + second
        slack = max(device - int(device * share), 0)
        reserved = max(device - int((device - gone) * share) + second, 0)
        allowance = int((gone * share + second) / 2)
    kv_bytes = 1 if str(declared.value("kv_cache_dtype") or "").startswith("fp8") else 2
    cache = declared.value(defaults.EMBEDDING_CACHE)
    weights = memory.weights_mib(_quantized(context.model, declared), tensor * pipeline)
    quantised_afterwards = declared.value("quantization") in defaults.QUANTISED_AFTERWARDS
    loads_whole = quantised_afterwards and declared.value("load_format") != "layered"
    loading = memory.weights_mib(context.model, tensor * pipeline) if loads_whole else weights
    offloaded = min(_offload_mib(declared), weights or 0) if context.cuda else 0
    most_tokens = declared.value("max_total_tokens")
    ranks = max(tensor // groups, 1)
    return Budget(
        device_mib=device,
        weights_mib=None if weights is None else weights - offloaded,
        activations_mib=activations,
        slack_mib=slack,
        contexts_mib=contexts,
        loading_mib=None if loading is None else max(loading - _offload_mib(declared), 0),
        most_tokens=int(most_tokens) if most_tokens and context.cuda else None,
        offloaded_mib=offloaded,
        reserved_mib=reserved,
        embedding_cache_mib=_number(cache, context.engine.default(defaults.EMBEDDING_CACHE)) if context.cuda else 0,
        kv_token_bytes=memory.kv_bytes_per_token(
            context.model,
            ranks,
            pipeline,
            kv_bytes,
            float(declared.value("swa_full_tokens_ratio") or memory.SLIDING_SHARE),
        ),
        request_tokens=request_tokens(context),
        slot_bytes=memory.state_bytes(context.model, ranks, pipeline, states.dtype_bytes(declared)),
        slots_each=states.slots_per_request(context, declared),
        slots_set=states.slots_set(declared, groups),
        state_share=states.share(declared),
        requests=running_share(context, declared),
        share=share,
        allowance_mib=allowance,
        # Releases that take the pool off the KV cache's share count it twice: it is not free by then either, since the HTTP
        # process makes it while the schedulers still start (entrypoints/engine.py: init_tokenizer_manager comes first).
        pool_times=2 if pooled and context.engine.does("pool_off_kv_cache") else 1,
    )


def _activations(context: Context, declared: Declared, device_mib: int, groups: int) -> float:
    parallel = context.spec.parallelism
    chunk, graph = context.engine.capacity_defaults(device_mib, parallel.tensor)
    value = declared.value("chunked_prefill_size")
    if value is not None:
        # Without chunks a whole prefill batch is in flight.
        whole = _number(declared.value("max_prefill_tokens"), context.engine.default("max_prefill_tokens"))
        chunk = int(value) if int(value) > 0 else whole
    limit = declared.value("max_running_requests")
    if limit and context.engine.does("graph_within_running_limit"):
        graph = min(graph, int(limit))
    graph = _number(declared.value("cuda_graph_max_bs_decode"), graph)
    return defaults.activations_mib(
        device_mib,
        chunked_prefill=chunk,
        decode_graph=graph,
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        attention_groups=groups,
    )


def pool_mib(context: Context, declared: Declared) -> int:
    """MiB of the pool of image features on the first device: as declared, or what the engine takes by itself."""
    setting, way = declared.get(defaults.POOL), transport(declared)
    if setting is not None and setting.applied:
        return 0 if way == "cpu" or not context.cuda else int(setting.value or 0)
    if way not in ON_THE_GPU or not context.cuda:
        return 0
    expected = setting.expected if setting is not None else None
    return int(expected or context.engine.default(defaults.POOL))


def too_few(context: Context, declared: Declared) -> Held | None:
    """What the memory of one rank holds, if that is fewer requests than are declared to run there at once."""
    concurrency = context.spec.workload.concurrency
    if concurrency is None or not context.cuda:
        return None
    total = budget(context, declared)
    left = total.kv_beside_mib(pool_mib(context, declared))
    if left is None or left <= 0:
        return None
    held = total.held(left)
    wanted = math.ceil(concurrency / request_groups(context, declared))
    return held if held.requests is not None and held.requests < wanted else None


def _quantized(model: ModelFacts, declared: Declared) -> ModelFacts:
    bytes_each = defaults.LOADED_BYTES.get(str(declared.value("quantization")))
    if bytes_each is not None:
        return replace(model, bytes_per_parameter=min(model.bytes_per_parameter, bytes_each))
    return model


def _offload_mib(declared: Declared) -> int:
    """Weights of each rank that stay in the host's memory: ``cpu_offload_gb`` counts GiB (utils/offloader.py)."""
    return int(float(declared.value("cpu_offload_gb") or 0) * 1024)


def host_cache_mib(declared: Declared, kv_mib: int) -> int:
    """Pinned host memory of one rank for the hierarchical cache; 0 without it. ``hicache_size`` counts GB."""
    if not declared.value("enable_hierarchical_cache"):
        return 0
    size = int(declared.value("hicache_size") or 0)
    if size > 0:
        return math.ceil(size * 1e9 / memory.MIB)
    return math.ceil(kv_mib * float(declared.value("hicache_ratio") or defaults.HICACHE_RATIO))


def _number(value: Any, default: int) -> int:
    return default if value is None or int(value) < 0 else int(value)
