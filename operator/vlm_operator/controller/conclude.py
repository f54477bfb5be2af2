"""From what was seen of a service to its status. Pure: the time comes from outside."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.names import ENGINE_PORT
from vlm_api.plan import Finding, ServingPlan, Severity
from vlm_api.reasons import Conditions
from vlm_api.status import Condition, ConditionStatus, PlanStatus, VLMService, VLMServiceStatus
from vlm_operator.controller import conditions as judge
from vlm_operator.controller import reasons
from vlm_operator.controller.drift import hardware_drift
from vlm_operator.controller.effectiveness import effective, overrides_effective
from vlm_operator.controller.observed import Observed, Verdict
from vlm_operator.controller.scaling import desired, scaling_active
from vlm_operator.controller.startup import startup
from vlm_operator.render import engine_scheme
from vlm_operator.render.names import selector_labels
from vlm_operator.render.workload import LWS_WORKER_INDEX


def conclude(service: VLMService, seen: Observed, previous: VLMServiceStatus | None, now: str) -> VLMServiceStatus:
    """The whole status.

    ``now`` is RFC 3339 in UTC and is used only where a condition's status changes, and for the age of a start.
    """
    before = {c.type: c for c in previous.conditions} if previous else {}
    verdicts = {
        Conditions.AVAILABLE: judge.available(service, seen),
        Conditions.PROGRESSING: judge.progressing(service, seen),
        Conditions.HARDWARE_RESOLVED: judge.hardware_resolved(seen),
        Conditions.OVERRIDES_RESOLVED: judge.overrides_resolved(seen),
        Conditions.RESOURCE_FIT: judge.resource_fit(seen),
        Conditions.MODEL_READY: judge.model_ready(seen),
        Conditions.OVERRIDES_EFFECTIVE: overrides_effective(seen, before.get(Conditions.OVERRIDES_EFFECTIVE)),
        Conditions.HARDWARE_DRIFT: hardware_drift(seen),
    }
    if (scaling := scaling_active(service, seen)) is not None:
        verdicts[Conditions.SCALING_ACTIVE] = scaling
    verdicts = {Conditions.READY: judge.ready(service, seen, verdicts)} | verdicts
    generation = service.metadata.get("generation")
    labels = selector_labels(service.name)
    if seen.plan is not None and seen.plan.resources.pods > 1:
        labels[LWS_WORKER_INDEX] = "0"
    return VLMServiceStatus(
        observed_generation=generation,
        conditions=[_condition(name, verdict, before.get(name), generation, now) for name, verdict in verdicts.items()],
        desired_replicas=desired(service, seen),
        replicas=seen.replicas.present,
        ready_replicas=seen.replicas.ready,
        updated_replicas=seen.replicas.updated if seen.replicas.settled else 0,
        available_replicas=seen.replicas.available,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        url=_url(service, seen.plan, previous),
        # Without a plan of the present spec, the one before is still what the pods run.
        plan=_plan(seen.plan) or (previous.plan if previous else None),
        model=seen.inspection if seen.inspection and seen.inspection.digest else None,
        startup=startup(seen, now),
        effective=effective(seen, service.spec.workload.images.reuse.value, previous.effective if previous else None),
        benchmark=previous.benchmark if previous else None,
    )


def _url(service: VLMService, plan: ServingPlan | None, previous: VLMServiceStatus | None) -> str:
    if (plan is None or plan.errors) and previous and previous.url:
        return previous.url
    scheme = engine_scheme(plan) if plan else "http"
    return f"{scheme}://{service.name}.{service.namespace}.svc:{ENGINE_PORT}/v1"


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
    yield from _told_of_settings(previous, status)
    found, found_before = _about_images(status), _about_images(previous)
    if found is not None and (found_before is None or found_before.reason != found.reason):
        yield "Warning" if found.severity is Severity.WARNING else "Normal", found.reason, found.message
    drift = _find(status, Conditions.HARDWARE_DRIFT)
    if drift is not None and drift.status is ConditionStatus.TRUE and _turned(previous, drift):
        yield "Warning", drift.reason, drift.message


def _told_of_settings(previous: VLMServiceStatus | None, status: VLMServiceStatus) -> Iterator[tuple[str, str, str]]:
    """Once when settings are not in force, and once when they are."""
    now, ready = _find(status, Conditions.OVERRIDES_EFFECTIVE), _find(status, Conditions.READY)
    if now is None or not _turned(previous, now):
        return
    if now.status is ConditionStatus.TRUE:
        yield "Normal", now.reason, now.message
    elif now.status is ConditionStatus.FALSE and (ready is None or ready.reason != now.reason):
        yield "Warning", now.reason, now.message  # else it was told as the reason why the service is not ready


def _turned(previous: VLMServiceStatus | None, now: Condition) -> bool:
    """Whether a condition has another status than before, or another reason to be False."""
    was = _find(previous, now.type)
    return was is None or was.status != now.status or (now.status is ConditionStatus.FALSE and was.reason != now.reason)


def _about_images(status: VLMServiceStatus | None) -> Finding | None:
    images = status.effective.images if status is not None and status.effective is not None else None
    return images.finding if images is not None else None


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


def _refused(status: VLMServiceStatus) -> bool:
    return any(f.severity.value == "Error" for f in (status.plan.findings if status.plan else []))


def _find(status: VLMServiceStatus | None, name: str) -> Condition | None:
    return next((c for c in status.conditions if c.type == name), None) if status else None
