"""Observations of a service with one pool, as short as a test can say them."""

from dataclasses import replace
from typing import Any

from unit.manifests.samples import plan, service

from vlm_api.plan import PlanMemory
from vlm_api.report import Phase, Report
from vlm_api.status import VLMServiceStatus
from vlm_operator.controller.status.conclude import conclude
from vlm_operator.controller.status.observation import Observation, PoolObservation
from vlm_operator.controller.status.pods import PodView
from vlm_operator.controller.status.replicas import Replicas

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"
PLAN = plan(hash="abc", memory=PlanMemory(weights_mib=15259, kv_cache_mib=30000, reserved_mib=13728))
SERVING = Replicas(wanted=1, present=1, ready=1, updated=1, available=1)
STARTING = Replicas(wanted=1, present=1, ready=0, updated=1, available=0)


def pod(name: str = "vlm-0", **changes: Any) -> PodView:
    made = PodView(
        name=name,
        uid=name,
        plan_hash="abc",
        node="node-0",
        address="10.0.0.1",
        ready=False,
        running=True,
        restarts=0,
        leader=True,
        deleting=False,
        unschedulable=None,
        failure=None,
    )
    return replace(made, **changes)


def report(**changes: Any) -> Report:
    return Report(
        plan_hash="abc", phase=Phase.LOADING_WEIGHTS, ready=False, elapsed_seconds=10, budget_seconds=900
    ).model_copy(update=changes)


def observed(**fields: Any) -> PoolObservation:
    return PoolObservation(**({"spec": service().spec} | fields))


def status_of(
    pools: PoolObservation | tuple[PoolObservation, ...],
    previous: VLMServiceStatus | None = None,
    now: str = NOW,
    **spec: Any,
) -> VLMServiceStatus:
    """The status of a service with these pools; keyword arguments are its spec, and that of its pools."""
    of, some = service(**spec), pools if isinstance(pools, tuple) else (pools,)
    if spec:
        some = tuple(replace(pool, spec=of.spec) for pool in some)
    return conclude(of, Observation(some), previous, now)


def verdicts(pools: PoolObservation | tuple[PoolObservation, ...], **spec: Any) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status.value, c.reason) for c in status_of(pools, **spec).conditions}


SERVED = observed(plan=PLAN, replicas=SERVING, pods=[pod(ready=True)])
