"""Speculative decoding that the engine asserts against at its start: arg_groups/speculative_hook.py and validation_hook.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Setting
from vlm_operator.engines.types import Choice
from vlm_operator.errors import InvalidInput
from vlm_operator.resolve.context import Context, Declared
from vlm_operator.resolve.ranks import attention_groups

# Algorithms whose drafts have a depth and a width, and those that know no groups of tensor ranks.
DRAFTED: Final = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
UNGROUPED: Final = ("NGRAM", "STANDALONE")
STEPS, WIDTH, TOKENS = "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"
BACKENDS: Final = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")


def drafts(context: Context, declared: Declared) -> Iterator[Setting]:
    """Raises InvalidInput for sizes of drafts, attention backends and ways to spread a model that the engine refuses."""
    algorithm = context.choices.settings.get("speculative_algorithm")
    if algorithm is None:
        return
    _spread(context, declared, algorithm)
    if str(algorithm.value).upper() in DRAFTED:
        _sized(context, algorithm)
    yield from ()


def _spread(context: Context, declared: Declared, algorithm: Choice) -> None:
    pipeline, groups = context.spec.parallelism.pipeline, attention_groups(context, declared)
    if pipeline > 1 and "SGLANG_ENABLE_PP_SPEC" not in context.choices.env:
        raise InvalidInput(
            algorithm.path,
            f"the engine serves no speculative decoding in stages, and parallelism.pipeline is {pipeline}: remove one of them",
        )
    if groups > 1 and str(algorithm.value).upper() in UNGROUPED:
        raise InvalidInput(
            algorithm.path,
            f"the engine serves {algorithm.value} with no attention groups, and there are {groups} of them: remove one of them",
        )


def _sized(context: Context, algorithm: Choice) -> None:
    settings = context.choices.settings
    steps, width, tokens = (settings.get(name) for name in (STEPS, WIDTH, TOKENS))
    said = width or tokens or steps
    if said is not None and not context.choices.get("speculative_adaptive"):
        tree = width is not None and int(width.value) > 1
        missing = STEPS if steps is None else WIDTH if width is None else TOKENS if tree and tokens is None else None
        if missing is not None:
            raise InvalidInput(
                said.path,
                f"{algorithm.value} takes it only with {missing} beside it, without which the engine would end at its start: "
                "set that too, or remove all sizes of drafts and leave them to the engine",
            )
    backend = next((b for name in BACKENDS if (b := settings.get(name)) is not None and b.value == "trtllm_mha"), None)
    if backend is not None and width is not None and int(width.value) > 1:
        raise InvalidInput(
            backend.path,
            f"trtllm_mha checks no more than one draft at a time, and {WIDTH} is {width.value} ({width.path}): remove one of "
            "them",
        )
