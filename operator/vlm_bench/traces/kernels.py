"""Names of kernels and operators -> kinds of work."""

import re
from collections.abc import Iterable
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


# The first that matches counts. Norms come before attention, since FlashInfer's norms carry "flash" in their name, and so
# does what only appends to a paged cache; attention comes before GEMM, since FlashAttention 3 is a CUTLASS kernel and
# cuDNN's attention carries "wgmma"; FlashInfer's activations, sampling and rotary kernels are none of them. Names as they
# stand in traces of SGLang on Hopper and in the sources of SGLang 0.5.23 and FlashInfer 0.7: cuBLAS calls its own nvjet_*,
# SGLang's Triton attention is _fwd_kernel (those of its MoE, _fwd_kernel_ep_gather and others, are not), and FlashInfer's
# batched products of trtllm-gen are bmm_*.
_KERNELS: Final = (
    (Work.COMMUNICATION, _pattern(r"nccl", r"all_?reduce", r"all_?gather", r"reduce_?scatter", r"all_?to_?all",
                                  r"cross_device_reduce", r"nvshmem", r"deep_?ep", r"mscclpp", r"multimem")),
    (Work.NORMALISATION, _pattern(r"(rms|layer|group|batch|l2|qk)_?norm", r"norm_(rope_)?kernel", r"::norm::")),
    (Work.OTHER, _pattern(r"flashinfer::(activation|sampling|rope)", r"rotary", r"act_and_mul",
                          r"(?<![a-z])top_?[kp](?!softmax)")),
    (Work.COPY, _pattern(r"Append\w*Paged")),
    (Work.ATTENTION, _pattern(r"flash_?attn", r"flash::", r"\dflash\d", r"flash_(fwd|bwd|fprop)", r"fmha", r"attention", r"attn",
                              r"sdpa", r"(Decode|Prefill|POD)With\w*KVCache", r"PersistentVariableLengthMergeStates",
                              r"merge_?state", r"^_fwd_kernel(?!_(ep|expand|fill|masked))", r"_fwd_grouped_kernel",
                              r"^_fwd_(kv|diag|none_diag)_", r"paged_?kv_?cache", r"\bmha\b", r"\bmla\b")),
    (Work.GEMM, _pattern(r"nvjet", r"gemm", r"gemv", r"cublas", r"xmma", r"cutlass", r"split_?k", r"matmul", r"mat_?vec",
                         r"fused_moe", r"grouped_mm", r"\bmm_kernel", r"scaled_mm", r"\bbmm_", r"mul_mat", r"marlin", r"cask",
                         r"tensorop", r"wgmma", r"implicit_convolve", r"\bconv(?!ert)")),
    (Work.COPY, _pattern(r"mem(cpy|set)", r"copy", r"\bcat", r"CatArray", r"index", r"gather", r"scatter", r"transpose",
                         r"(?<!pre)fill", r"store_(kv|cache)", r"set_(\w+_)?kv", r"concat")),
)  # fmt: skip
_OPERATORS: Final = (
    (Work.COMMUNICATION, _pattern(r"^c10d::", r"^gloo:", r"^nccl:", r"all_?reduce", r"all_?gather")),
    (Work.NORMALISATION, _pattern(r"(layer|rms|group|batch)_norm")),
    (Work.ATTENTION, _pattern(r"scaled_dot_product", r"flash_attention", r"attention")),
    (Work.GEMM, _pattern(r"^aten::(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|dot|einsum|_?scaled_mm|_?int_mm)(\b|_)",
                         r"conv(?!ert)", r"mkldnn.*linear", r"gemm")),
    (Work.COPY, _pattern(r"^aten::(copy_|cat|clone|contiguous|index|gather|scatter|stack|fill_|zero_|zeros|_to_copy|to|"
                         r"select_scatter|slice_scatter|embedding|repeat|expand|masked_fill|empty|pin_memory|"
                         r"_local_scalar_dense)(_|\b)", r"^aten::index")),
)  # fmt: skip
# Wrappers, which carry another kernel as their first template argument.
_WRAPPER: Final = re.compile(r"^[\w:]*\b(?:device_kernel|Kernel2?|enable_sm\d\w*)<")
# Where the vision encoder runs: SGLang's own mark, which includes placing the features, or modules and entry points of its
# models, which a trace with Python frames holds.
_VISION_FRAME: Final = _pattern(
    r"^sglang\.vlm\.mm_embedding", r"nn\.Module: \w*(vision|visual|vit)", r"get_image_feature", r"get_video_feature"
)
_VISION_NAME: Final = _pattern(r"vision", r"visual", r"(^|_)vit(_|$)")


def kernel_work(name: str) -> Work:
    """The kind of a GPU kernel."""
    if _VISION_NAME.search(name):
        return Work.VISION
    return next((work for work, pattern in _KERNELS if pattern.search(name)), Work.OTHER)


def operator_work(name: str) -> Work:
    """The kind of a CPU operator."""
    return next((work for work, pattern in _OPERATORS if pattern.search(name)), Work.OTHER)


def is_vision_frame(name: str) -> bool:
    """Whether a Python frame or a module belongs to the vision encoder."""
    return _VISION_FRAME.search(name) is not None


def short(name: str, length: int = 60) -> str:
    """A kernel's name without templates and arguments; for a wrapper, the kernel inside."""
    text = re.sub(r"^void |\(anonymous namespace\)::", "", name)
    while wrapper := _WRAPPER.match(text):
        text = text[wrapper.end() :]
    text = re.split(r"[<>,(]", text)[0].strip() or name
    return text if len(text) <= length else text[: length - 1] + "…"


def sum_by_work(times: Iterable[tuple[Work, float]]) -> dict[Work, float]:
    """Kind of work -> microseconds, in the order of Work, without kinds that took no time."""
    total = dict.fromkeys(Work, 0.0)
    for work, time in times:
        total[work] += time
    return {work: time for work, time in total.items() if time}
