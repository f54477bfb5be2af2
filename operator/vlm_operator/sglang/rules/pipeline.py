"""The rules in order: what an earlier one applied, a later one does not change. They yield settings and nothing else."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from vlm_api.plan import Setting
from vlm_operator.sglang.budget import too_few
from vlm_operator.sglang.context import Context, Declared, left
from vlm_operator.sglang.expected import fill_expected
from vlm_operator.sglang.rules import feature_pool, hardware, profile, traffic, user

Rule = Callable[[Context, Declared], Iterable[Setting]]

USER: Final[tuple[Rule, ...]] = (user.written, user.no_cuda_ipc, user.media_domains)
TUNED: Final[tuple[Rule, ...]] = (
    traffic.vision_on,
    hardware.on_the_cpu,
    traffic.running_limit,
    traffic.embedding_cache,
    traffic.enforced_limits,
    hardware.no_cuda_ipc_on_shares,
    feature_pool.no_room_for_pool,
    profile.measured_set,
    feature_pool.pool_for_chosen_transport,
    feature_pool.tensor_ranks_unbalanced,
    feature_pool.encoder_data_parallel,
    hardware.base_attention_backend,
)


def written(context: Context) -> Declared:
    """Only what the user wrote."""
    return _declare([user.written], context)


def resolve(context: Context) -> tuple[Context, Declared]:
    """Every setting that a rule looked at, and the context with what memory holds beside them."""
    declared = _declare(USER + TUNED if context.tuned else USER, context)
    held = too_few(context, declared)
    if held is not None:
        context = replace(context, held=held)
        declared = _declare(USER + TUNED if context.tuned else USER, context)
    if not context.tuned:
        # They are listed nevertheless, to show what Off leaves out.
        for setting in _declare(USER + TUNED, context):
            if setting.name not in declared:
                declared.add(
                    left(setting.name, setting.rule, "engine.tuning is Off: only what the user wrote is passed")
                )
    fill_expected(context, declared)
    return context, declared


def _declare(rules: Iterable[Rule], context: Context) -> Declared:
    declared = Declared()
    for rule in rules:
        for setting in rule(context, declared):
            declared.add(setting)
    return declared
