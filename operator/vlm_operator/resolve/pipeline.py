"""The phases, in order: what an earlier one applied, a later one does not touch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vlm_api.plan import Finding, Setting
from vlm_operator.resolve.context import Context, Declared, left
from vlm_operator.resolve.rules import (
    attention,
    certificates,
    cpu,
    doors,
    engine,
    hardware,
    pool,
    profile,
    refusals,
    speculation,
    user,
    vision,
    workload,
)

Rule = Callable[[Context, Declared], Iterable[Setting | Finding]]

USER: tuple[Rule, ...] = (
    user.written,
    user.possible,
    user.reachable,
    user.keyed,
    refusals.another_server,
    refusals.own_devices,
    refusals.shapes,
    speculation.drafts,
    certificates.certificates,
    attention.consistent,
    user.no_to_cuda_ipc,
    doors.control_paths,
    doors.media_domains,
    doors.media_urls,
    doors.ways_out,
)
TUNED: tuple[Rule, ...] = (
    vision.vision_on,
    cpu.on_the_cpu,
    workload.running_limit,
    workload.embedding_cache,
    workload.declared_limits,
    hardware.no_cuda_ipc_on_parts,
    pool.no_room_for_a_pool,
    profile.measured_set,
    pool.pool_for_chosen_transport,
    pool.tensor_ranks_unbalanced,
    pool.encoder_data_parallel,
    workload.consistent,
    attention.base_backend,
)


def resolve(context: Context) -> tuple[Declared, list[Finding]]:
    """Every setting that a rule looked at, and what a person should know.

    Raises InvalidInput for a user's choice that cannot work on any cluster.
    """
    declared, findings = _run(USER + TUNED if context.tuned else USER, context)
    if not context.tuned:
        # Shown all the same, so that a person sees what Off leaves out.
        for setting in _run(USER + TUNED, context)[0]:
            if setting.name not in declared:
                declared.add(
                    left(setting.name, setting.rule, "engine.tuning is Off: only what the user wrote is passed")
                )
    engine.fill_expected(context, declared)
    return declared, [*context.choices.findings, *findings]


def _run(rules: Iterable[Rule], context: Context) -> tuple[Declared, list[Finding]]:
    declared, findings = Declared(), list[Finding]()
    for rule in rules:
        for item in rule(context, declared):
            if isinstance(item, Finding):
                findings.append(item)
            else:
                declared.add(item)
    return declared, findings
