"""A plan with its hash and the pod template that was made from it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vlm_api.plan import ServingPlan
from vlm_operator import manifests
from vlm_operator.facts.types import Cluster, ModelFacts
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


def plan_with_manifests(
    request: PoolRequest,
    cluster: Cluster,
    *,
    runtime_image: str,
    inspected: ModelFacts | None = None,
    families: Sequence[Family] | None = None,
) -> ServingPlan:
    """The whole plan, as it is printed: with its hash and every object that would be applied; no objects if it has Errors."""
    plan = make_plan(request, cluster, runtime_image=runtime_image, inspected=inspected, families=families)
    if plan.errors:
        return plan
    sealed = seal(plan, request)
    objects = manifests.objects([manifests.Pool(sealed.plan, sealed.pod_template, request)])
    return sealed.plan.model_copy(update={"manifests": objects})
