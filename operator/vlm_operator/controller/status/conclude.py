"""From an observation to the status. Pure: the time comes from outside."""

from collections.abc import Mapping

from vlm_api import reasons
from vlm_api.bounds import cut, harmless
from vlm_api.inspection import Inspection
from vlm_api.names import ENGINE_PORT
from vlm_api.plan import MAX_SHORT, ServingPlan
from vlm_api.reasons import Conditions
from vlm_api.status import MAX_MESSAGE, Condition, PlanStatus, PoolStatus, VLMService, VLMServiceStatus
from vlm_operator.controller.status.conditions import badness, judge
from vlm_operator.controller.status.effectiveness import effective
from vlm_operator.controller.status.observation import FALSE, TRUE, Observation, PoolObservation, Verdict
from vlm_operator.controller.status.replicas import Replicas
from vlm_operator.controller.status.startup_progress import startup
from vlm_operator.manifests import engine_scheme
from vlm_operator.manifests.names import serving_labels


def conclude(
    service: VLMService, observation: Observation, previous: VLMServiceStatus | None, now: str
) -> VLMServiceStatus:
    """The whole status.

    ``now`` is RFC 3339 in UTC; it is used only if a condition's status changes, and for the age of a start.
    """
    before = {c.type: c for c in previous.conditions} if previous else {}
    generation = service.metadata.get("generation")
    verdicts = verdicts_of(observation, before)
    shown, counted = observation.shown, [p.replicas for p in observation.serving]
    inspection = shown.inspection
    return VLMServiceStatus(
        observed_generation=generation,
        conditions=[_condition(name, verdict, before.get(name), generation, now) for name, verdict in verdicts.items()],
        desired_replicas=sum(p.desired_replicas for p in observation.serving),
        replicas=sum(r.present for r in counted),
        ready_replicas=sum(r.ready for r in counted),
        updated_replicas=sum(r.updated for r in counted if r.settled),
        available_replicas=sum(r.available for r in counted),
        selector=_selector(service, shown),
        url=_url(service, shown.plan, previous),
        # Without a plan of the current spec, the previous one is still what the pods run.
        plan=_plan(shown.plan) or (previous.plan if previous else None),
        model=inspection if inspection and inspection.digest else None,
        startup=startup(shown, now),
        effective=effective(shown, previous.effective if previous else None),
        benchmark=previous.benchmark if previous else None,
        pools=_pools(observation, before) if service.spec.pools else [],
    )


def at_fault(previous: VLMServiceStatus | None, generation: int | None, where: str, now: str) -> VLMServiceStatus:
    """The status if the operator cannot finish for a fault of its own: Ready is False, all else is what was last known.

    ``where`` names the fault, without values of the spec, which may be secret.
    """
    message = (
        f"the operator has a fault, {where}, and cannot finish its work on this service: pods stay as they are, and it is tried "
        "again; report the fault with the operator's log, and undo the last change of the spec if that brought it"
    )
    before = {c.type: c for c in previous.conditions} if previous else {}
    verdict = Verdict(FALSE, reasons.OPERATOR_FAULT, message)
    ready = _condition(Conditions.READY, verdict, before.pop(Conditions.READY, None), generation, now)
    changed = {"observed_generation": generation, "conditions": [ready, *before.values()]}
    return (previous or VLMServiceStatus()).model_copy(update=changed)


def verdicts_of(observation: Observation, before: Mapping[str, Condition]) -> dict[str, Verdict]:
    """The service's conditions by type: of each, that of its worst pool, which the message names if there are several.

    Available is True while one pool that serves is. ``before`` are the previous conditions by type.
    """
    judged = {pool.name: judge(pool, before) for pool in observation.judged}
    names = dict.fromkeys(name for verdicts in judged.values() for name in verdicts)
    folded = {}
    for name in names:
        of_pools = [(pool, verdicts[name]) for pool, verdicts in judged.items() if name in verdicts]
        folded[name] = _worst(name, of_pools)
    serving = {pool.name for pool in observation.serving}
    for pool, verdicts in judged.items():
        if pool in serving and verdicts[Conditions.AVAILABLE].status is TRUE:
            folded[Conditions.AVAILABLE] = _named(pool, verdicts[Conditions.AVAILABLE], several=len(judged) > 1)
            break
    return folded | _without_router(observation.router, folded)


def _without_router(router: Replicas | None, verdicts: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """What changes if the service's address is that of routers, and none is ready."""
    if router is None or router.wanted == 0 or router.available > 0:
        return {}
    message = (
        f"0 of {router.wanted} routers are ready, so no request reaches an engine: look at the pods of the Deployment"
    )
    verdict = Verdict(FALSE, reasons.ROUTER_NOT_READY, message)
    hidden = [name for name in (Conditions.AVAILABLE, Conditions.READY) if verdicts[name].status is TRUE]
    return dict.fromkeys(hidden, verdict)


def _worst(condition: str, verdicts: list[tuple[str, Verdict]]) -> Verdict:
    pool, worst = min(verdicts, key=lambda of: badness(condition, of[1]))
    return _named(pool, worst, several=any(verdict != worst for _, verdict in verdicts))


def _named(pool: str, verdict: Verdict, *, several: bool) -> Verdict:
    return verdict._replace(message=f"pool {pool}: {verdict.message}") if several else verdict


def _condition(name: str, verdict: Verdict, before: Condition | None, generation: int | None, now: str) -> Condition:
    kept = before is not None and before.status is verdict.status
    return Condition(
        type=name,
        status=verdict.status,
        reason=verdict.reason,
        message=cut(harmless(verdict.message), MAX_MESSAGE),
        last_transition_time=before.last_transition_time if kept and before else now,
        observed_generation=generation,
    )


def _pools(observation: Observation, before: Mapping[str, Condition]) -> list[PoolStatus]:
    shown = observation.shown.inspection
    return [_pool(pool, judge(pool, before)[Conditions.READY], shown) for pool in observation.pools]


def _pool(pool: PoolObservation, ready: Verdict, shown: Inspection | None) -> PoolStatus:
    """``shown``: what the status says of the service's model already."""
    read = pool.inspection if pool.inspection is not None and pool.inspection.digest else None
    return PoolStatus(
        name=pool.name,
        role=pool.role,
        desired_replicas=pool.desired_replicas,
        replicas=pool.replicas.present,
        ready_replicas=pool.replicas.ready,
        updated_replicas=pool.replicas.updated if pool.replicas.settled else 0,
        available_replicas=pool.replicas.available,
        plan=pool.plan.hash if pool.plan is not None else "",
        product=pool.plan.hardware.product if pool.plan is not None else None,
        reason=ready.reason,
        message=cut(harmless(ready.message), MAX_SHORT),
        model=read if read is not None and (shown is None or shown.digest != read.digest) else None,
    )


def _selector(service: VLMService, pool: PoolObservation) -> str:
    labels = serving_labels(service.name, grouped=pool.plan is not None and pool.plan.resources.pods > 1)
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _url(service: VLMService, plan: ServingPlan | None, previous: VLMServiceStatus | None) -> str:
    if (plan is None or plan.errors) and previous and previous.url:
        return previous.url
    scheme = engine_scheme(plan) if plan else "http"
    return f"{scheme}://{service.name}.{service.namespace}.svc:{ENGINE_PORT}/v1"


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
