"""A plan with its hash and the pod template that was made from it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vlm_api.plan import RouterPlan, ServingPlan
from vlm_operator import manifests
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.types import Cluster, ModelFacts
from vlm_operator.fleet.router import RoutedPool, plan_router
from vlm_operator.plan.digest import plan_hash, stored
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.request import PoolRequest
from vlm_operator.sglang.profiles import Family


@dataclass(frozen=True)
class StoredPlan:
    """What the ConfigMap NAME-plan-HASH holds."""

    plan: ServingPlan
    pod_template: dict[str, Any]


def seal(plan: ServingPlan, request: PoolRequest) -> StoredPlan:
    """The plan with its hash, and its pod template. Raises InvalidInput for a template that no pod can have."""
    # In one order, whatever the order in which the user wrote the template's fields.
    pods = json.loads(stored(manifests.pod_template(plan, request)))
    return StoredPlan(plan.model_copy(update={"hash": plan_hash(plan, pods)}), pods)


def plans_with_manifests(
    requests: Sequence[PoolRequest],
    cluster_of: Callable[[PoolRequest], Cluster],
    *,
    runtime_image: str,
    inspected: ModelFacts | None = None,
    families: Sequence[Family] | None = None,
) -> tuple[list[ServingPlan], RouterPlan | None]:
    """The plans of a service's pools and its router, as they are printed: with hashes and every object that would be applied.

    What all pools share is among the objects of the first plan without Errors; a plan with Errors has none. Raises
    InvalidInput, with the path by which the user finds the field.
    """
    plans, pools = [], []
    for request in requests:
        try:
            plan = make_plan(
                request, cluster_of(request), runtime_image=runtime_image, inspected=inspected, families=families
            )
            if not plan.errors:
                sealed = seal(plan, request)
                plan = sealed.plan
                pools.append(manifests.Pool(plan, sealed.pod_template, request))
        except InvalidInput as error:
            raise request.located(error) from error
        plans.append(plan)
    objects = {pool.plan.pool: manifests.pool_objects(pool, None) for pool in pools}
    router, part = requests[0].router, None
    if router is not None:
        routed = [RoutedPool(request, plan) for request, plan in zip(requests, plans, strict=True)]
        part = manifests.RouterPart(plan_router(router, routed), routed, answers=True)
    if pools:
        first, applied = pools[0].plan.pool, part if part is not None and not part.plan.errors else None
        shared = manifests.service_objects(pools, None, manifests.USUAL_SITE, applied)
        objects[first] = shared + objects[first]
    printed = [plan.model_copy(update={"manifests": objects.get(plan.pool, [])}) for plan in plans]
    return printed, part.plan if part is not None else None


def plan_with_manifests(
    request: PoolRequest,
    cluster: Cluster,
    *,
    runtime_image: str,
    inspected: ModelFacts | None = None,
    families: Sequence[Family] | None = None,
) -> ServingPlan:
    """The plan of a service with one pool, as it is printed."""
    (plan,), _ = plans_with_manifests(
        [request], lambda _: cluster, runtime_image=runtime_image, inspected=inspected, families=families
    )
    return plan
