"""Speculative decoding that the engine asserts against at its start: arg_groups/speculative_hook.py and validation_hook.py."""

from collections.abc import Iterator
from typing import Final

from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.ranks import attention_groups

# Algorithms whose drafts have a depth and a width, and those that do not work with groups of tensor ranks.
DRAFTED: Final = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
UNGROUPED: Final = ("NGRAM", "STANDALONE")
STEPS, WIDTH, TOKENS = "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"
BACKENDS: Final = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")


def spread(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """Speculative decoding over stages or groups of ranks that do not support it."""
    algorithm = context.choices.settings.get("speculative_algorithm")
    if algorithm is None:
        return
    pipeline, groups = context.spec.parallelism.pipeline, attention_groups(context, declared)
    if pipeline > 1 and "SGLANG_ENABLE_PP_SPEC" not in context.choices.env:
        yield InvalidInput(
            algorithm.path,
            f"the engine does not support speculative decoding with pipeline stages, and parallelism.pipeline is {pipeline}: "
            "remove one of them",
        )
    if groups > 1 and str(algorithm.value).upper() in UNGROUPED:
        yield InvalidInput(
            algorithm.path,
            f"the engine does not support {algorithm.value} with attention groups, and there are {groups}: "
            "remove one of them",
        )


def drafts(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """Sizes of drafts that are incomplete, or wider than an attention backend verifies."""
    settings = context.choices.settings
    algorithm = settings.get("speculative_algorithm")
    if algorithm is None or str(algorithm.value).upper() not in DRAFTED:
        return
    steps, width, tokens = (settings.get(name) for name in (STEPS, WIDTH, TOKENS))
    given = width or tokens or steps
    if given is not None and not context.choices.get("speculative_adaptive"):
        tree = width is not None and int(width.value) > 1
        missing = STEPS if steps is None else WIDTH if width is None else TOKENS if tree and tokens is None else None
        if missing is not None:
            yield InvalidInput(
                given.path,
                f"{algorithm.value} accepts it only together with {missing}, and the engine would not start without: set "
                "that too, or remove all sizes of drafts and leave them to the engine",
            )
    backend = next((b for name in BACKENDS if (b := settings.get(name)) is not None and b.value == "trtllm_mha"), None)
    if backend is not None and width is not None and int(width.value) > 1:
        yield InvalidInput(
            backend.path,
            f"trtllm_mha verifies one draft at a time, and {WIDTH} is {width.value} ({width.path}): remove one of them",
        )
