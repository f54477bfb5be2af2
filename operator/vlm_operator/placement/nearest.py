"""The nearest plans on which a model would fit that does not: more devices, and fewer with fp8 weights."""

from dataclasses import replace
from typing import Final

from vlm_operator.facts.types import ModelFacts
from vlm_operator.sglang.budget import budget
from vlm_operator.sglang.capabilities import runs_fp8
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.ranks import rank_count
from vlm_operator.sglang.splits import MOST_DEVICES, works

# The side of the blocks in fp8 checkpoints of Qwen, DeepSeek and GLM; those without blocks can be split more freely.
FP8_BLOCK: Final = 128


def what_would_fit(context: Context, declared: Declared, pool_mib: int) -> str:
    """The nearest plans that would fit: more devices, and fewer with fp8 weights."""

    def least(model: ModelFacts) -> int | None:
        """The smallest number of tensor ranks, not below those declared, on which the model fits and splits evenly."""
        first = context.spec.parallelism.tensor
        return next(
            (n for n in range(first, MOST_DEVICES + 1) if _fits(replace(context, model=model), declared, n, pool_mib)),
            None,
        )

    as_it_is, one_byte = least(context.model), None
    if context.model.bytes_per_parameter > 1 and runs_fp8(context, declared):
        one_byte = least(replace(context.model, bytes_per_parameter=1.0, quantised_block=FP8_BLOCK))
    if as_it_is is None and one_byte is None:
        data = context.spec.parallelism.data
        enough = f"enough on one node beside parallelism.data {data}: lower that;" if data > 1 else "enough:"
        return f"no number of such devices is {enough} fewer or smaller images, or GPUs with more memory, would fit"
    fp8 = f"with fp8 weights ({_fp8(context, declared, one_byte, pool_mib)})"
    if as_it_is is None:
        return f"it would fit on {_ranks(context, one_byte or 0)} {fp8}"
    what = f"it would fit on {_ranks(context, as_it_is)}"
    if one_byte is not None and one_byte < as_it_is:
        what += f", or on {_ranks(context, one_byte)} {fp8}"
    return what


def _fp8(context: Context, declared: Declared, tensor: int | None, pool_mib: int) -> str:
    """How to come by fp8 weights on so many tensor ranks: the engine makes them only of files that have room first."""
    checkpoint = "a checkpoint in fp8, spec.model.uri"
    if tensor is None:
        return checkpoint
    total = budget(_with_ranks(context, tensor), declared)
    if total.device_mib is None or total.loading_need_mib(pool_mib) > total.device_mib:
        return checkpoint
    return f"{checkpoint}, or engine.settings.quantization: fp8"


def _fits(context: Context, declared: Declared, tensor: int, pool_mib: int) -> bool:
    """Whether the model fits and splits evenly with that many tensor ranks, everything else as declared."""
    if not works(context, declared, tensor) or not _on_its_nodes(context, tensor):
        return False
    # Of a model whose heads are unknown, only such numbers are likely to divide them.
    if context.model.attention_heads is None and tensor & (tensor - 1):
        return False
    return has_room(context, declared, tensor, pool_mib) or False


def has_room(context: Context, declared: Declared, tensor: int, pool_mib: int) -> bool | None:
    """Whether the memory of that many tensor ranks holds the model; None if it is unknown."""
    total = budget(_with_ranks(context, tensor), declared)
    left = total.kv_beside_mib(pool_mib)
    if left is None or total.device_mib is None:
        return None
    if context.model.evidence is not None and total.loading_need_mib(pool_mib) > total.device_mib:
        return False
    return left >= max(total.kv_mib(1), 1)


def _on_its_nodes(context: Context, tensor: int) -> bool:
    """Whether there may be nodes for that many tensor ranks: ``parallelism.data`` works inside one node only."""
    devices = context.gpu.present if context.gpu is not None else 0
    return (
        context.spec.parallelism.data == 1
        or not devices
        or rank_count(context.spec, context.choices, tensor) <= devices
    )


def _with_ranks(context: Context, tensor: int) -> Context:
    """The same service with that many tensor ranks."""
    parallelism = context.spec.parallelism.model_copy(update={"tensor": tensor})
    return replace(context, spec=context.spec.model_copy(update={"parallelism": parallelism}))


def _ranks(context: Context, tensor: int) -> str:
    """``4 devices (parallelism.tensor: 4)``, with the nodes that these take if one has too few."""
    gpu, needed = context.gpu, rank_count(context.spec, context.choices, tensor)
    change = f"parallelism.tensor: {tensor}"
    if gpu is not None and gpu.present and needed > gpu.present * context.spec.multinode.node_count:
        nodes = next(n for n in range(1, needed + 1) if needed % n == 0 and needed // n <= gpu.present)
        change += f", multinode.nodeCount: {nodes}"
    return f"{counted(tensor * context.spec.parallelism.pipeline)} ({change})"


def counted(devices: int) -> str:
    """``1 device``, ``4 devices``."""
    return f"{devices} device{'s' * (devices > 1)}"
