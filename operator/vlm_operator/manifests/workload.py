"""The workload of a pool (a Deployment, or a LeaderWorkerSet if one replica takes several nodes) and its autoscaler."""

from typing import Final

from vlm_api.names import LWS_API, LWS_KIND, LWS_WORKER_INDEX
from vlm_api.plan import ServingPlan
from vlm_operator.manifests import names
from vlm_operator.manifests.names import Manifest
from vlm_operator.plan.request import PoolRequest

# Pulling an image of 15 GB comes before the start that the budget counts.
IMAGE_PULL_SECONDS: Final = 1200


def workload(plan: ServingPlan, template: Manifest, request: PoolRequest) -> Manifest:
    """The workload, without labels and owner. ``template`` is the one that is applied, with the plan's hash."""
    return _group(plan, template, request) if plan.resources.pods > 1 else _deployment(plan, template, request)


def reference(plan: ServingPlan, request: PoolRequest) -> Manifest:
    """Version, kind and name of the pool's workload."""
    service, pool = request.service, request.pool
    if plan.resources.pods > 1:
        return {"apiVersion": LWS_API, "kind": LWS_KIND, "name": names.group_name(service, pool)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": names.pool_name(service, pool)}


def _header(plan: ServingPlan, request: PoolRequest) -> Manifest:
    target = reference(plan, request)
    return {"apiVersion": target["apiVersion"], "kind": target["kind"], "metadata": {"name": target["name"]}}


def _replicas(request: PoolRequest) -> Manifest:
    """With autoscaling the field is left out from the first apply on, so that the operator never owns it."""
    if request.spec.suspend:
        return {"replicas": 0}
    if request.spec.scaling is not None:
        return {}
    return {"replicas": 1 if request.spec.replicas is None else request.spec.replicas}


def _groups_rolling_update(request: PoolRequest) -> Manifest:
    """The strategy as a LeaderWorkerSet accepts it. Unlike a Deployment it refuses a surge above 100 %, and a rollout in
    which no group may be unavailable and none may be added, such as 25 % of 2 groups."""
    strategy = request.spec.rollout_strategy
    surge, unavailable = strategy.max_surge, strategy.max_unavailable
    if isinstance(surge, str) and int(surge.rstrip("%")) > 100:
        surge = "100%"
    none_added = int(str(surge).rstrip("%")) == 0
    if none_added and isinstance(unavailable, str) and _fewest(request) * int(unavailable.rstrip("%")) < 100:
        unavailable = 1
    return {"maxSurge": surge, "maxUnavailable": unavailable}


def _fewest(request: PoolRequest) -> int:
    """The lowest number of replicas, for which percentages are the smallest."""
    if request.spec.scaling is not None:
        return request.spec.scaling.min_replicas
    return 1 if request.spec.replicas is None else request.spec.replicas


def _deployment(plan: ServingPlan, template: Manifest, request: PoolRequest) -> Manifest:
    strategy = request.spec.rollout_strategy
    update = {"maxSurge": strategy.max_surge, "maxUnavailable": strategy.max_unavailable}
    return {
        **_header(plan, request),
        "spec": {
            **_replicas(request),
            "selector": {"matchLabels": names.selector_labels(request)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": update},
            "progressDeadlineSeconds": plan.runtime.startup_budget_seconds + IMAGE_PULL_SECONDS,
            "template": template,
        },
    }


def _group(plan: ServingPlan, template: Manifest, request: PoolRequest) -> Manifest:
    return {
        **_header(plan, request),
        "spec": {
            **_replicas(request),
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": _groups_rolling_update(request)},
            "leaderWorkerTemplate": {
                "size": plan.resources.pods,
                # A tensor-parallel group that lost a pod cannot continue.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": template,
            },
        },
    }


# Requests that a pod holds. The custom metrics API must serve it for each pod (docs/autoscaling.md).
IN_FLIGHT_METRIC: Final = "vlmserve_requests_in_flight"
DEFAULT_TARGET_IN_FLIGHT: Final = 32
TARGET_SHARE: Final = 0.8


def autoscaler(plan: ServingPlan, request: PoolRequest) -> Manifest:
    """The autoscaler of a pool with ``scaling``, without labels and owner."""
    scaling = request.spec.scaling
    assert scaling is not None
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": names.pool_name(request.service, request.pool)},
        "spec": {
            "scaleTargetRef": reference(plan, request),
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": IN_FLIGHT_METRIC},
                        "target": {"type": "AverageValue", "averageValue": str(target_in_flight(plan, request))},
                    },
                }
            ],
        },
    }


def disruption_budget(plan: ServingPlan, request: PoolRequest) -> Manifest | None:
    """Lets evictions, such as those of a drained node, take one replica at a time; None for a pool of one replica, which
    would keep its node from being drained. Without labels and owner."""
    scaling, replicas = request.spec.scaling, request.spec.replicas
    if request.spec.suspend or (replicas or 1 if scaling is None else scaling.max_replicas) < 2:
        return None
    # Of a group, the leader answers.
    leader = {LWS_WORKER_INDEX: "0"} if plan.resources.pods > 1 else {}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": names.budget_name(request.service, request.pool)},
        "spec": {
            "maxUnavailable": 1,
            # A pod that does not serve protects nothing.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": names.selector_labels(request) | leader},
        },
    }


def target_in_flight(plan: ServingPlan, request: PoolRequest) -> int:
    """Requests in flight per replica that the autoscaler aims at: a share of what is declared, or of what memory holds."""
    if request.spec.scaling is not None and request.spec.scaling.target_in_flight is not None:
        return request.spec.scaling.target_in_flight
    concurrency, held = request.spec.workload.concurrency, plan.memory.requests
    if concurrency is None:
        return DEFAULT_TARGET_IN_FLIGHT
    return max(1, int(min(concurrency, concurrency if held is None else held) * TARGET_SHARE))
