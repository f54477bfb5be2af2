"""Declared traffic that the settings contradict."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding, error, warning
from vlm_api.reasons import FindingReason
from vlm_api.spec import Tuning
from vlm_operator.checks.types import CheckInput, ScaleInput
from vlm_operator.sglang.budget import request_length as longest_request
from vlm_operator.sglang.context import Context
from vlm_operator.sglang.rules import traffic as rules

# The engine takes a context_length above the model's only with it (configs/model_config.py).
LONGER_CONTEXT: Final = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def request_length(plan: CheckInput) -> Iterator[Finding]:
    """Requests that are longer than the context, or than the whole KV cache."""
    context, tokens = plan.context, longest_request(plan.context)
    if not context.tuned:
        return
    length, most = plan.declared.value("context_length"), plan.declared.value("max_total_tokens")
    own = _own_length(plan)
    declared = f"a declared request has {tokens:,} tokens with its {_media(context)}"
    if length is not None and int(length) < tokens:
        yield warning(
            FindingReason.CONTEXT_TOO_SHORT,
            f"{declared}, and context_length is {length}, so the engine refuses it; raise context_length or lower the "
            "workload's tokens",
            context.choices.settings["context_length"].path,
        )
    elif length is None and own is not None and own < tokens:
        yield warning(
            FindingReason.CONTEXT_TOO_SHORT,
            f"{declared}, and the model takes {own:,} (its config.json), so the engine refuses it; lower the workload's "
            f"tokens or the number and size of its {_media(context)}, or use a model with a longer context",
            "spec.workload",
        )
    if most is not None and context.cuda and int(most) < tokens:
        yield warning(
            FindingReason.CONTEXT_TOO_SHORT,
            f"{declared}, and max_total_tokens limits the whole KV cache to {most}, so no such request is served; raise it, "
            "or leave it to the engine",
            context.choices.settings["max_total_tokens"].path,
        )


def _media(context: Context) -> str:
    return " and ".join(part.noun for part in context.media) or "images"


def context_length(plan: CheckInput) -> Iterator[Finding]:
    """A context_length above the model's own, with which the engine does not start."""
    length, own = plan.context.choices.settings.get("context_length"), _own_length(plan)
    if length is None or own is None or int(length.value) <= own or plan.declared.value(LONGER_CONTEXT):
        return
    yield error(
        FindingReason.CONTEXT_TOO_LONG,
        f"context_length is {length.value}, and the model takes {own:,} tokens (its config.json), so the engine would not "
        f"start: use {own} or less; if the model was trained for more, set engine.settings.{LONGER_CONTEXT}: true",
        length.path,
    )


def _own_length(plan: CheckInput) -> int | None:
    """The context of the model's own files; None if it is unknown, or if the user changes what the engine reads there."""
    changed = plan.context.choices.settings.get("json_model_override_args")
    return None if changed is not None else plan.context.model.context_length


def media_per_request(plan: CheckInput) -> Iterator[Finding]:
    """Requests with more images or videos than the user's limit."""
    limits = plan.context.choices.settings.get("limit_mm_data_per_request")
    if limits is None or not plan.context.tuned:
        return
    for noun, declared in rules.media_per_request(plan.context).items():
        allowed = limits.value.get(noun)
        if allowed is not None and allowed < declared:
            yield warning(
                FindingReason.IMAGES_REFUSED if noun == "image" else FindingReason.VIDEOS_REFUSED,
                f"declared requests have {declared} {noun}s and the engine is set to accept {allowed}, so it refuses such "
                f"requests; raise the limit, or lower workload.{noun}s.perRequest",
                limits.path,
            )


def images_enforced(plan: CheckInput) -> Iterator[Finding]:
    """``images.enforce`` with a release that lacks the flags for it."""
    context = plan.context
    if not (context.tuned and context.spec.workload.images.enforce):
        return
    for name, value, _ in rules.image_limits(context):
        if value is not None and not context.knows(name):
            yield warning(
                FindingReason.IMAGES_NOT_ENFORCED,
                f"{context.engine_name()} has no --{name.replace('_', '-')}; use 0.5.9 or later to enforce images",
                "spec.workload.images.enforce",
            )


def scaling_target(scale: ScaleInput) -> Iterator[Finding]:
    """An autoscaler that adds a replica only after requests have started to wait."""
    scaling, running = scale.spec.scaling, scale.max_running_requests
    target = scaling.target_in_flight if scaling is not None and scale.spec.engine.tuning is Tuning.AUTO else None
    if target is not None and running is not None and target > int(running):
        yield warning(
            FindingReason.SCALES_LATE,
            f"scaling.targetInFlight is {target} and a replica runs {running} requests at once, so a replica is added only "
            f"when {target - int(running)} requests already wait; lower it to {running} or below",
            "spec.scaling.targetInFlight",
        )
