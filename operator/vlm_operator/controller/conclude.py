"""From what was seen of a service to its status. Pure: the time comes from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vlm_api.names import ENGINE_PORT
from vlm_api.plan import ServingPlan
from vlm_api.reasons import Conditions
from vlm_api.report import Phase
from vlm_api.status import Condition, ConditionStatus, Effective, PlanStatus, Startup, VLMService, VLMServiceStatus
from vlm_operator.controller import conditions as judge
from vlm_operator.controller import reasons
from vlm_operator.controller.conditions import Verdict
from vlm_operator.controller.observed import Observed
from vlm_operator.render.names import selector_labels
from vlm_operator.render.workload import LWS_WORKER_INDEX

# How exactly the status tells a start's age. Pods are asked more often, and each change of a status is a write.
ELAPSED_STEP_SECONDS: Final = 15


def conclude(service: VLMService, seen: Observed, previous: VLMServiceStatus | None, now: str) -> VLMServiceStatus:
    """The whole status. ``now`` is RFC 3339 in UTC and is used only where a condition's status changes."""
    verdicts = {
        Conditions.AVAILABLE: judge.available(service, seen),
        Conditions.PROGRESSING: judge.progressing(service, seen),
        Conditions.HARDWARE_RESOLVED: judge.hardware_resolved(seen),
        Conditions.OVERRIDES_RESOLVED: judge.overrides_resolved(seen),
        Conditions.RESOURCE_FIT: judge.resource_fit(seen),
        Conditions.MODEL_READY: judge.model_ready(seen),
        Conditions.OVERRIDES_EFFECTIVE: judge.overrides_effective(seen),
        Conditions.HARDWARE_DRIFT: judge.hardware_drift(seen),
    }
    verdicts = {Conditions.READY: judge.ready(service, seen, verdicts)} | verdicts
    generation = service.metadata.get("generation")
    before = {c.type: c for c in previous.conditions} if previous else {}
    labels = selector_labels(service.name)
    if seen.plan is not None and seen.plan.resources.pods > 1:
        labels[LWS_WORKER_INDEX] = "0"
    return VLMServiceStatus(
        observed_generation=generation,
        conditions=[_condition(name, verdict, before.get(name), generation, now) for name, verdict in verdicts.items()],
        replicas=seen.replicas.present,
        ready_replicas=seen.replicas.ready,
        updated_replicas=seen.replicas.updated if seen.replicas.settled else 0,
        available_replicas=seen.replicas.available,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        url=f"http://{service.name}.{service.namespace}.svc:{ENGINE_PORT}/v1",
        # Without a plan of the present spec, the one before is still what the pods run.
        plan=_plan(seen.plan) or (previous.plan if previous else None),
        model=seen.inspection if seen.inspection and seen.inspection.digest else None,
        startup=_startup(seen),
        effective=_effective(seen),
    )


def told(previous: VLMServiceStatus | None, status: VLMServiceStatus) -> Iterator[tuple[str, str, str]]:
    """What people should be told of a change of status: (Normal or Warning, reason, note) for each Event."""
    before = previous.plan.hash if previous and previous.plan else ""
    after = status.plan.hash if status.plan else ""
    if before and after and before != after and not _refused(status):
        yield "Normal", reasons.PLAN_CHANGED, f"plan {after} replaces {before}: the pods are replaced"
    was = _find(previous, Conditions.READY)
    now = _find(status, Conditions.READY)
    if now is not None and (was is None or (was.status, was.reason) != (now.status, now.reason)):
        calm = now.status is ConditionStatus.TRUE or now.reason in (
            reasons.STARTING,
            reasons.INSPECTING,
            reasons.SUSPENDED,
            reasons.SCALED_TO_ZERO,
        )
        yield "Normal" if calm else "Warning", now.reason, now.message
    unread = status.model.failure if status.model else None
    if unread is not None and (previous is None or previous.model != status.model):
        yield "Warning", unread.reason, unread.message
    drift = _find(status, Conditions.HARDWARE_DRIFT)
    drifted = _find(previous, Conditions.HARDWARE_DRIFT)
    if (
        drift is not None
        and drift.status is ConditionStatus.TRUE
        and (drifted is None or drifted.status != drift.status)
    ):
        yield "Warning", drift.reason, drift.message


def _condition(name: str, verdict: Verdict, before: Condition | None, generation: int | None, now: str) -> Condition:
    kept = before is not None and before.status is verdict.status
    return Condition(
        type=name,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message[:32_768],
        last_transition_time=before.last_transition_time if kept and before else now,
        observed_generation=generation,
    )


def _plan(plan: ServingPlan | None) -> PlanStatus | None:
    if plan is None:
        return None
    return PlanStatus(
        hash=plan.hash,
        spec_digest=plan.spec_digest,
        engine=plan.engine,
        hardware=plan.hardware,
        settings=plan.settings,
        memory=plan.memory,
        resources=plan.resources,
        findings=plan.findings,
    )


def _startup(seen: Observed) -> Startup | None:
    """How far the slowest pod is; None when none is on its way."""
    plan_hash = seen.plan.hash if seen.plan else ""
    starting = [
        r
        for r in seen.reports.values()
        if not r.ready and r.plan_hash == plan_hash and r.phase not in (Phase.DRAINING, Phase.STOPPED)
    ]
    if not starting:
        return None
    order = list(Phase)
    slowest = min(starting, key=lambda r: (order.index(r.phase), -r.elapsed_seconds))
    return Startup(
        phase=slowest.phase.value,
        elapsed_seconds=int(slowest.elapsed_seconds // ELAPSED_STEP_SECONDS * ELAPSED_STEP_SECONDS),
        budget_seconds=slowest.budget_seconds,
    )


def _effective(seen: Observed) -> Effective | None:
    """One pod's answer: the first that differs from the plan, else the first."""
    plan_hash = seen.plan.hash if seen.plan else ""
    asked = sorted((n, r) for n, r in seen.reports.items() if r.settings and r.plan_hash == plan_hash)
    if not asked:
        return None
    name, report = next(((n, r) for n, r in asked if any(not s.agrees for s in r.settings)), asked[0])
    different = [s for s in report.settings if not s.agrees]
    return Effective(
        pod=name,
        agrees=not different,
        settings=[{"name": s.name, "planned": s.planned, "effective": s.effective} for s in different],
    )


def _refused(status: VLMServiceStatus) -> bool:
    return any(f.severity.value == "Error" for f in (status.plan.findings if status.plan else []))


def _find(status: VLMServiceStatus | None, name: str) -> Condition | None:
    return next((c for c in status.conditions if c.type == name), None) if status else None
