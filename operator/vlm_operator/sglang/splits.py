"""Whether a model can be split over so many devices at all: what the engine asserts at its start.

The same checks as SGLang's: heads in every ``models/*.py`` and ``layers/attention/vision.py``, layers in
``utils/common.py`` (make_layers), experts in ``layers/moe/fused_moe_triton/layer.py`` and ``arg_groups/parallel_hook.py``,
blocks of fp8 weights in ``layers/quantization/fp8.py``, groups of AWQ, GPTQ and compressed-tensors in ``awq/schemes``,
``gptq/schemes``, ``marlin_utils.py`` and ``compressed_tensors/schemes`` below it. A fact that is not known refuses nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vlm_api.reasons import FindingReason
from vlm_operator.facts.types import ModelFacts
from vlm_operator.sglang.catalogue.releases import known
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.ranks import attention_groups, rank_count

MOST_DEVICES = 1024

HEADS, LAYERS = FindingReason.HEADS_NOT_DIVISIBLE, FindingReason.TOO_FEW_LAYERS
EXPERTS, BLOCKS = FindingReason.EXPERTS_NOT_DIVISIBLE, FindingReason.BLOCKS_NOT_DIVISIBLE


@dataclass(frozen=True)
class Split:
    """How a model is split."""

    tensor: int
    pipeline: int = 1
    expert: int = 1
    """Ranks over which whole experts are spread (``ep_size``)."""
    redundant_experts: int = 0
    attention_groups: int = 1
    """Groups of tensor ranks that each have all attention heads."""
    vision: bool = True
    """Whether the vision encoder's heads have to divide evenly."""
    padded: bool = False
    """Whether the engine fills up what does not divide, as it does on a CPU."""


@dataclass(frozen=True)
class Problem:
    """Why a split does not work."""

    reason: FindingReason
    clause: str
    """What cannot be split."""


def problems(model: ModelFacts, split: Split) -> Iterator[Problem]:
    """What the engine would assert against, the first that it meets first."""
    tensor, pipeline = split.tensor, split.pipeline
    if model.layers is not None and pipeline > model.layers:
        yield Problem(LAYERS, f"{model.layers} layers are fewer than the {pipeline} stages of parallelism.pipeline")
    if not split.padded:
        yield from _heads(model, max(tensor // split.attention_groups, 1), vision=split.vision)
    yield from _experts(model, split)
    if not split.padded:
        yield from _blocks(model, split)
        yield from _groups(model, split)


def _heads(model: ModelFacts, ranks: int, *, vision: bool) -> Iterator[Problem]:
    heads, kv_heads = model.attention_heads, model.kv_heads
    if heads is not None and heads % ranks:
        yield Problem(HEADS, f"{heads} attention heads")
    if kv_heads is not None and kv_heads % ranks and ranks % kv_heads:
        yield Problem(HEADS, f"{kv_heads} key-value heads")
    if vision and model.vision_heads is not None and model.vision_heads % ranks:
        yield Problem(HEADS, f"{model.vision_heads} heads of the vision encoder")


def _experts(model: ModelFacts, split: Split) -> Iterator[Problem]:
    if model.experts is None:
        return
    if split.tensor % split.expert or split.expert > split.tensor:
        yield Problem(
            EXPERTS,
            f"experts are spread over ep_size {split.expert}, which does not divide parallelism.tensor {split.tensor}",
        )
    elif (model.experts + split.redundant_experts) % split.expert:
        yield Problem(
            EXPERTS, f"{model.experts + split.redundant_experts} experts do not divide over ep_size {split.expert}"
        )
    elif split.tensor > model.experts:
        yield Problem(EXPERTS, f"{model.experts} experts are fewer than parallelism.tensor {split.tensor}")


def _groups(model: ModelFacts, split: Split) -> Iterator[Problem]:
    """The layers whose rows are cut: the last of each feed-forward block, and the output of attention."""
    group, ranks = model.quantised_group, split.tensor
    if group is None or ranks == 1:
        return
    attention = model.attention_heads * model.head_size if model.attention_heads and model.head_size else None
    parts = [
        (model.feed_forward_size, ranks, "feed-forward layers"),
        (attention, max(ranks // split.attention_groups, 1), "attention"),
    ]
    for size, over, what in parts:
        if size is not None and size % group == 0 and (size % over or size // over % group):
            yield Problem(BLOCKS, f"{what} of width {size:,} in groups of {group} weights that share a scale")


def _blocks(model: ModelFacts, split: Split) -> Iterator[Problem]:
    block = model.quantised_block
    if block is None:
        return
    parts = [(model.feed_forward_size, split.tensor, "feed-forward layers"), (model.expert_size, 0, "experts")]
    for size, ranks, what in parts:
        over = ranks or max(split.tensor // split.expert, 1)
        if size is not None and over > 1 and (size % over or size // over % block):
            hint = " (or ep_size, which keeps experts whole)" if what == "experts" else ""
            yield Problem(BLOCKS, f"{what} of width {size:,} in fp8 blocks of {block}{hint}")


def split_of(context: Context, declared: Declared, tensor: int | None = None) -> Split:
    """The split that a plan asks for; with another number of tensor ranks if one is given."""
    parallel = context.spec.parallelism
    divides: list[str] = known()["vision_heads_divide"]["architectures"]
    return Split(
        tensor=parallel.tensor if tensor is None else tensor,
        pipeline=parallel.pipeline,
        expert=_whole(declared.value("ep_size"), 1),
        redundant_experts=_whole(declared.value("ep_num_redundant_experts"), 0),
        attention_groups=attention_groups(context, declared) * _whole(declared.value("attn_cp_size"), 1),
        vision=context.model.architecture in divides and not declared.value("mm_enable_dp_encoder"),
        padded=not context.cuda,
    )


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default


def works(context: Context, declared: Declared, tensor: int) -> bool:
    """Whether the model can be split over so many tensor ranks, and these over the nodes of a replica."""
    split, ranks = split_of(context, declared, tensor), rank_count(context.spec, context.choices, tensor)
    if tensor % split.attention_groups or ranks % context.spec.multinode.node_count:
        return False
    return next(problems(context.model, split), None) is None
