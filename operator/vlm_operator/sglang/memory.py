"""Memory by arithmetic: feature pool, weights, KV cache, CUDA contexts, shared and host memory.

Sums over declared facts. Every constant names its source; SGLang's paths are relative to ``sglang/srt``.
"""

import math
from collections.abc import Iterable, Sequence

from vlm_operator.facts.types import ModelFacts
from vlm_operator.sglang.defaults import LARGE_DEVICE_MIB

MIB = 1 << 20

FLOAT32 = 4
CONVOLUTION_BYTES = 2
# swa_full_tokens_ratio by default.
SLIDING_SHARE = 0.8

# A pool chunk is rounded up to 256 bytes; 10 % is lost to fragmentation (multimodal/transport/cuda_ipc.py).
CHUNK_BYTES = 256
FRAGMENTATION = 1.1
POOL_GRANULE_MIB = 64

# /dev/shm: NCCL takes about 9.2 MiB per channel and rank pair, and the default of 64 MiB kills tensor parallelism.
SHARED_MEMORY_FLOOR_MIB = 8192
SHARED_MEMORY_PER_RANK_MIB = 4096
SHARED_MEMORY_FLOOR_CPU_MIB = 1024

# Python, torch and CUDA contexts of the HTTP process, one scheduler per device and the detokenizer: about 4 GiB and
# 2 GiB per scheduler in resident memory. A request for scheduling, not a limit.
HOST_BASE_MIB = 4096
HOST_PER_DEVICE_MIB = 2048


def round_up(value: float, step: int) -> int:
    """The smallest multiple of ``step`` that is not below ``value``."""
    return math.ceil(value / step) * step


def pool_mib(features: Iterable[tuple[int, int]]) -> int:
    """MiB of feature pool that hold all ``features``, as (how many, bytes of each), at once, fragmentation included."""
    total = sum(count * round_up(each, CHUNK_BYTES) for count, each in features)
    return round_up(total * FRAGMENTATION / MIB, POOL_GRANULE_MIB)


def chunks_in_pool(pool_mib: int, features: Sequence[int]) -> int:
    """How often a pool of ``pool_mib`` holds ``features``, as the bytes of each."""
    return int(pool_mib * MIB / FRAGMENTATION // sum(round_up(each, CHUNK_BYTES) for each in features))


def weights_mib(model: ModelFacts, devices: int) -> int | None:
    """MiB of weights on each of ``devices`` (tensor x pipeline) devices; None when the model's size is unknown."""
    if model.parameters is None:
        return None
    return math.ceil(model.parameters * model.bytes_per_parameter / devices / MIB)


def kv_bytes_per_token(
    model: ModelFacts, tensor: int, pipeline: int, bytes_per_value: float = 2, sliding: float = SLIDING_SHARE
) -> int | None:
    """KV cache bytes of one token on one device (mem_cache/pool_configurator.py).

    2 x layers/pipeline x ceil(KV heads/tensor) x head size x bytes; with latent attention layers/pipeline x size x bytes,
    whole on each rank. Layers with a pool of their own count by ``sliding``, the tokens of it per token of the others.
    """
    layers = model.layers if model.kv_layers is None else model.kv_layers
    if layers is None:
        return None
    windows = min(model.sliding_layers or 0, layers)
    on_stage = math.ceil((layers - windows) / pipeline) + sliding * math.ceil(windows / pipeline)
    if model.latent_size is not None:
        return int(on_stage * model.latent_size * bytes_per_value)
    if model.kv_heads is None or model.head_size is None:
        return None
    return int(2 * on_stage * math.ceil(model.kv_heads / tensor) * model.head_size * bytes_per_value)


def state_bytes(model: ModelFacts, tensor: int, pipeline: int, bytes_per_value: int | None = None) -> int:
    """Bytes of one slot for the states of layers without a KV cache, on one device; 0 for models without such layers
    (configs/mamba_utils.py: ``mamba_cache_per_req``). ``bytes_per_value``: of recurrent states; None: as the model says."""
    recurrent = (model.state_values or 0) * (bytes_per_value or model.state_value_bytes or FLOAT32)
    convolution = (model.convolution_values or 0) * CONVOLUTION_BYTES
    return math.ceil((recurrent + convolution) / (tensor * pipeline))


# What a device lacks before any weight is loaded, which the engine's own sum has not: it goes by the memory that is free then
# (mem_cache/kv_cache_configurator.py, _profile_available_bytes). Read off logs of SGLang, "Load weight begin. avail mem"
# against the device's total: 1,128 MiB on an H200 (PR 11716), 1,222 on an RTX PRO 6000 (issue 40558), 1,219 on an A100 (issue
# 485); the driver's own part and one CUDA context with its modules. Less on small devices, which have fewer multiprocessors.
CONTEXT_MIB = 1280
CONTEXT_SHARE = 0.05
# The second process on the first GPU, which prepares images there: PR 22662 measured 500 MiB a context; with it and all, the
# CI of PR 36411 had about 2,030 MiB less than the total on an H100.
SECOND_CONTEXT_MIB = 768
# Buffers of NCCL on each rank: 1.43 GiB for 4 ranks and 2.01 for 8 with NVLink (PRs 13075 and 11716), 0.39 over PCIe (issue
# 40558), which is how devices below 60 GiB are joined.
COMMUNICATION_MIB = {"small": 512, "large": 1536, "large, more than 4 ranks": 2048}


def context_mib(memory_mib: int, ranks: int) -> int:
    """MiB of a device that are gone before weights are loaded: driver, CUDA context, and NCCL's buffers between ``ranks``."""
    context = min(CONTEXT_MIB, int(memory_mib * CONTEXT_SHARE))
    if ranks == 1:
        return context
    kind = "small" if memory_mib < LARGE_DEVICE_MIB else "large" if ranks <= 4 else "large, more than 4 ranks"
    return context + COMMUNICATION_MIB[kind]


def shared_memory_mib(*, cuda: bool, devices_in_pod: int, travelling_bytes: int) -> int:
    """Size of /dev/shm: the largest of a floor, NCCL's need, and all images and videos in flight travelling through it.

    With CUDA IPC it is where they go once the pool is full, so it is sized the same for both transports.
    """
    floor = SHARED_MEMORY_FLOOR_MIB if cuda else SHARED_MEMORY_FLOOR_CPU_MIB
    nccl = SHARED_MEMORY_PER_RANK_MIB * devices_in_pod if cuda and devices_in_pod > 1 else 0
    travelling = travelling_bytes * FRAGMENTATION / MIB
    return round_up(max(floor, nccl, travelling), 1024)
