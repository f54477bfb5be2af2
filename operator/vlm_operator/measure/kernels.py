"""Names of kernels and operators -> what kind of work they are."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final


class Work(str, Enum):
    """Kinds of work, in the order in which tables show them."""

    GEMM = "GEMM"
    ATTENTION = "attention"
    VISION = "vision encoder"
    NORMALISATION = "normalisation"
    COPY = "copies"
    COMMUNICATION = "communication"
    OTHER = "other kernels"
    HOST = "Python between operators"


def _pattern(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(parts), re.IGNORECASE)


# The first that matches counts. Norms come before attention, since FlashInfer's norms carry "flash" in their name;
# attention comes before GEMM, since FlashAttention 3 is a CUTLASS kernel; FlashInfer's activations, sampling and rotary
# kernels are none of them. Names as they stand in traces of SGLang on Hopper: cuBLAS calls its own nvjet_*.
_KERNELS: Final = (
    (Work.COMMUNICATION, _pattern(r"nccl", r"all_?reduce", r"all_?gather", r"reduce_?scatter", r"all_?to_?all",
                                  r"cross_device_reduce", r"nvshmem", r"deep_?ep")),
    (Work.NORMALISATION, _pattern(r"(rms|layer|group|batch|l2)_?norm", r"norm_kernel", r"::norm::")),
    (Work.OTHER, _pattern(r"flashinfer::(activation|sampling|rope)", r"rotary", r"act_and_mul", r"top_?[kp]_?")),
    (Work.ATTENTION, _pattern(r"flash_?attn", r"flash::", r"flash_(fwd|bwd)", r"fmha", r"attention", r"attn",
                              r"Batch(Decode|Prefill)With", r"SinglePrefillWith", r"PersistentVariableLengthMergeStates",
                              r"merge_?state", r"_fwd_grouped_kernel", r"paged_?kv_?cache", r"\bmha\b", r"\bmla\b")),
    (Work.GEMM, _pattern(r"nvjet", r"gemm", r"gemv", r"cublas", r"xmma", r"cutlass", r"split_?k", r"matmul", r"fused_moe",
                         r"grouped_mm", r"\bmm_kernel", r"tensorop", r"wgmma", r"implicit_convolve", r"\bconv")),
    (Work.COPY, _pattern(r"mem(cpy|set)", r"copy", r"\bcat", r"CatArray", r"index", r"gather", r"scatter", r"transpose",
                         r"fill", r"store_(kv|cache)", r"set_kv", r"concat")),
)  # fmt: skip
_OPERATORS: Final = (
    (Work.COMMUNICATION, _pattern(r"^c10d::", r"^gloo:", r"^nccl:", r"all_?reduce", r"all_?gather")),
    (Work.NORMALISATION, _pattern(r"(layer|rms|group|batch)_norm")),
    (Work.ATTENTION, _pattern(r"scaled_dot_product", r"flash_attention", r"attention")),
    (Work.GEMM, _pattern(r"^aten::(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|dot|einsum|_?scaled_mm|_?int_mm)(\b|_)",
                         r"conv", r"mkldnn.*linear", r"gemm")),
    (Work.COPY, _pattern(r"^aten::(copy_|cat|clone|contiguous|index|gather|scatter|stack|fill_|zero_|zeros|_to_copy|to|"
                         r"select_scatter|slice_scatter|embedding|repeat|expand|masked_fill|empty|pin_memory|"
                         r"_local_scalar_dense)(_|\b)", r"^aten::index")),
)  # fmt: skip
# Where the vision encoder runs: SGLang's own mark, which holds the placing of features as well, or else modules and
# entry points of its models, which a trace with Python's frames has.
_VISION_FRAME: Final = _pattern(
    r"^sglang\.vlm\.mm_embedding", r"nn\.Module: \w*(vision|visual|vit)", r"get_image_feature", r"get_video_feature"
)
_VISION_NAME: Final = _pattern(r"vision", r"visual", r"(^|_)vit(_|$)")


def kernel_work(name: str) -> Work:
    """The kind of a kernel of the GPU."""
    if _VISION_NAME.search(name):
        return Work.VISION
    return next((work for work, pattern in _KERNELS if pattern.search(name)), Work.OTHER)


def operator_work(name: str) -> Work:
    """The kind of an operator of the CPU."""
    return next((work for work, pattern in _OPERATORS if pattern.search(name)), Work.OTHER)


def is_vision_frame(name: str) -> bool:
    """Whether a Python frame or a module belongs to the vision encoder."""
    return _VISION_FRAME.search(name) is not None


def short(name: str, length: int = 60) -> str:
    """A kernel's name without what templates and arguments add to it."""
    text = re.sub(r"^void ", "", name)
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    text = text.split("(")[0].strip() or name
    return text if len(text) <= length else text[: length - 1] + "…"
