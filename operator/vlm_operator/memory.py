"""Memory by arithmetic: images, feature pool, weights, KV cache, what the engine reserves, shared and host memory.

Pure sums over declared facts. Every constant names its source; SGLang's paths are relative to ``sglang/srt`` of 0.5.23.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vlm_operator.facts.types import ModelFacts

MIB = 1 << 20

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


@dataclass(frozen=True)
class ImageProcessing:
    """How a model family cuts an image into patches."""

    patch_size: int
    """Pixels along one side of a patch."""
    merge_size: int
    """Patches along one side that become one token."""
    temporal_patch_size: int
    """Frames per patch; a still image is repeated to fill it."""
    min_pixels: int
    max_pixels: int
    evidence: str
    channels: int = 3
    bytes_per_value: int = 4
    """float32, as the processor returns it."""

    @property
    def factor(self) -> int:
        """Both sides are rounded to a multiple of this many pixels."""
        return self.patch_size * self.merge_size


@dataclass(frozen=True)
class Image:
    """One image after the model's own resizing."""

    width: int
    height: int
    bytes: int
    """Bytes of its patches, as they travel from the processor to the vision encoder."""
    tokens: int
    """Tokens in the language model."""


# Hugging Face's smart_resize refuses anything more stretched than this.
MAX_ASPECT_RATIO = 200


def image_after_resizing(width: int, height: int, processing: ImageProcessing) -> Image:
    """The image that the vision encoder sees, for one of ``width`` x ``height`` pixels.

    The same steps as ``smart_resize`` of Hugging Face's Qwen2-VL image processor: both sides to the nearest multiple of
    the factor (halves to even), then scaled so that the area lies between the processor's limits.

    Raises ValueError where the processor would: a side ratio above 200.
    """
    if max(width, height) / min(width, height) > MAX_ASPECT_RATIO:
        raise ValueError(f"the sides {width} x {height} differ by more than {MAX_ASPECT_RATIO} times")
    factor = processing.factor
    w, h = round(width / factor) * factor, round(height / factor) * factor
    if w * h > processing.max_pixels:
        beta = math.sqrt(height * width / processing.max_pixels)
        w = max(factor, math.floor(width / beta / factor) * factor)
        h = max(factor, math.floor(height / beta / factor) * factor)
    elif w * h < processing.min_pixels:
        beta = math.sqrt(processing.min_pixels / (height * width))
        w, h = math.ceil(width * beta / factor) * factor, math.ceil(height * beta / factor) * factor
    patches = (w // processing.patch_size) * (h // processing.patch_size)
    values = processing.channels * processing.temporal_patch_size * processing.patch_size**2
    return Image(w, h, patches * values * processing.bytes_per_value, patches // processing.merge_size**2)


def round_up(value: float, step: int) -> int:
    """The smallest multiple of ``step`` that is not below ``value``."""
    return math.ceil(value / step) * step


def pool_for_images_mib(images: int, image_bytes: int) -> int:
    """MiB of feature pool that hold ``images`` images of ``image_bytes`` bytes at once, fragmentation included."""
    return round_up(images * round_up(image_bytes, CHUNK_BYTES) * FRAGMENTATION / MIB, POOL_GRANULE_MIB)


def images_in_pool(pool_mib: int, image_bytes: int) -> int:
    """How many images fit into a pool of ``pool_mib``."""
    return int(pool_mib * MIB / FRAGMENTATION // round_up(image_bytes, CHUNK_BYTES))


def weights_mib(model: ModelFacts, devices: int) -> int | None:
    """MiB of weights on each of ``devices`` (tensor x pipeline) devices; None when the model's size is unknown."""
    if model.parameters is None:
        return None
    return math.ceil(model.parameters * model.bytes_per_parameter / devices / MIB)


def kv_bytes_per_token(model: ModelFacts, tensor: int, pipeline: int, bytes_per_value: float = 2) -> int | None:
    """KV cache bytes of one token on one device: 2 x layers/pipeline x ceil(KV heads/tensor) x head size x bytes."""
    if model.layers is None or model.kv_heads is None or model.head_size is None:
        return None
    layers, heads = math.ceil(model.layers / pipeline), math.ceil(model.kv_heads / tensor)
    return int(2 * layers * heads * model.head_size * bytes_per_value)


# (device memory below this many MiB, chunked prefill tokens, decode graph limit with tensor < 4, with tensor >= 4):
# arg_groups/memory_hook.py, "GPU-dependent capacity defaults".
CAPACITY_DEFAULTS = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
    (math.inf, 16384, 512, 512),
)
# Up to 0.5.19 the class of 24 and 32 GiB had less (server_args.py there); the others are the same since 0.5.9.
SMALL_CLASS_SINCE = "0.5.20"
OLDER_CAPACITY_DEFAULTS = (CAPACITY_DEFAULTS[0], (35 * 1024, 2048, 24, 80), *CAPACITY_DEFAULTS[2:])
UNKNOWN_CAPACITY_DEFAULTS = (4096, 160, 160)


def engine_capacity_defaults(memory_mib: int | None, tensor: int, *, older: bool = False) -> tuple[int, int]:
    """(chunked prefill tokens, decode graph limit) that the engine takes for a device of ``memory_mib`` by itself.

    ``older``: a release before ``SMALL_CLASS_SINCE``.
    """
    chunk, small, large = UNKNOWN_CAPACITY_DEFAULTS
    if memory_mib is not None:
        rows = OLDER_CAPACITY_DEFAULTS if older else CAPACITY_DEFAULTS
        _, chunk, small, large = next(row for row in rows if memory_mib < row[0])
    return chunk, small if tensor < 4 else large


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
LARGE_DEVICE_MIB = 60 * 1024
COMMUNICATION_MIB = {"small": 512, "large": 1536, "large, more than 4 ranks": 2048}


def context_mib(memory_mib: int, ranks: int) -> int:
    """MiB of a device that are gone before weights are loaded: driver, CUDA context, and NCCL's buffers between ``ranks``."""
    context = min(CONTEXT_MIB, int(memory_mib * CONTEXT_SHARE))
    if ranks == 1:
        return context
    kind = "small" if memory_mib < LARGE_DEVICE_MIB else "large" if ranks <= 4 else "large, more than 4 ranks"
    return context + COMMUNICATION_MIB[kind]


def activations_mib(
    memory_mib: int, *, chunked_prefill: int, decode_graph: int, tensor: int, pipeline: int, attention_groups: int = 1
) -> float:
    """What the engine leaves for activations and graphs by itself: arg_groups/memory_hook.py of 0.5.23.

    ``attention_groups``: its ``attn_dp_size``, with which graphs are padded for every group.
    """
    reserved = 512 + max(chunked_prefill, 2048) * 1.5 + tensor * pipeline * 128 + decode_graph * 2
    if attention_groups > 1:
        reserved += decode_graph * attention_groups * (4.5 if decode_graph > 300 else 3)
    return max(reserved, 10 * 1024) if memory_mib > LARGE_DEVICE_MIB else reserved


def static_fraction(memory_mib: int, activations: float, vision_hidden: int | None) -> float:
    """The engine's own ``mem_fraction_static``: the share of a device for weights and KV cache together.

    arg_groups/memory_hook.py of 0.5.23: what activations and graphs need is subtracted, then a factor for the vision
    encoder. The encoder's depth counts as 24 there, whatever it is; an unknown width is taken as the widest, 1152.
    """
    hidden = vision_hidden or 1152
    complexity = 24 * hidden**2 / (24 * 1024**2)
    factor = 0.95 * min(max(1 - 0.1 * (complexity - 1), 0.8), 1.05)
    return round((memory_mib - activations) / memory_mib, 3) * factor


def shared_memory_mib(*, cuda: bool, devices_in_pod: int, images: int | None, image_bytes: int | None) -> int:
    """Size of /dev/shm: the largest of a floor, NCCL's need, and all images in flight travelling through it.

    With CUDA IPC it is where images go once the pool is full, so it is sized the same for both transports.
    """
    floor = SHARED_MEMORY_FLOOR_MIB if cuda else SHARED_MEMORY_FLOOR_CPU_MIB
    nccl = SHARED_MEMORY_PER_RANK_MIB * devices_in_pod if cuda and devices_in_pod > 1 else 0
    travelling = images * image_bytes * FRAGMENTATION / MIB if images and image_bytes else 0
    return round_up(max(floor, nccl, travelling), 1024)
