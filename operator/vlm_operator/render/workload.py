"""What keeps the pods running: a Deployment, or a LeaderWorkerSet where one replica takes several nodes."""

from __future__ import annotations

from typing import Final

from vlm_api.plan import ServingPlan
from vlm_api.status import VLMService
from vlm_operator.render import names
from vlm_operator.render.names import Manifest

LWS_API: Final = "leaderworkerset.x-k8s.io/v1"
LWS_KIND: Final = "LeaderWorkerSet"
# Set on pods by the LeaderWorkerSet controller; "0" is the leader, the only pod of a group that speaks HTTP to clients.
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"

# Pulling an image of 15 GB comes before the start that the budget counts.
IMAGE_PULL_SECONDS: Final = 1200


def workload(plan: ServingPlan, template: Manifest, service: VLMService) -> Manifest:
    """The workload, without metadata other than its name. ``template`` carries the hash already."""
    return _group(plan, template, service) if plan.resources.pods > 1 else _deployment(plan, template, service)


def target_reference(plan: ServingPlan, service: VLMService) -> Manifest:
    """What an autoscaler scales."""
    if plan.resources.pods > 1:
        return {"apiVersion": LWS_API, "kind": LWS_KIND, "name": names.group_name(service.name)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name}


def _replicas(service: VLMService) -> Manifest:
    """With autoscaling the field is left out from the first apply on, so that it is never ours to undo."""
    if service.spec.suspend:
        return {"replicas": 0}
    if service.spec.scaling is not None:
        return {}
    return {"replicas": 1 if service.spec.replicas is None else service.spec.replicas}


def _rolling_update(service: VLMService) -> Manifest:
    strategy = service.spec.rollout_strategy
    return {"maxSurge": strategy.max_surge, "maxUnavailable": strategy.max_unavailable}


def _groups_rolling_update(service: VLMService) -> Manifest:
    """What a LeaderWorkerSet takes of it: unlike a Deployment it refuses a roll-out in which no group may be missing and
    none may be added, as with 25 % of 2 groups, and more than 100 %, which would add no more than all at once."""
    strategy = service.spec.rollout_strategy
    surge, unavailable = strategy.max_surge, strategy.max_unavailable
    if isinstance(surge, str) and int(surge.rstrip("%")) > 100:
        surge = "100%"
    none_added = int(str(surge).rstrip("%")) == 0
    if none_added and isinstance(unavailable, str) and _fewest(service) * int(unavailable.rstrip("%")) < 100:
        unavailable = 1
    return {"maxSurge": surge, "maxUnavailable": unavailable}


def _fewest(service: VLMService) -> int:
    """The number of replicas by which percentages are the smallest."""
    if service.spec.scaling is not None:
        return service.spec.scaling.min_replicas
    return 1 if service.spec.replicas is None else service.spec.replicas


def _deployment(plan: ServingPlan, template: Manifest, service: VLMService) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": service.name},
        "spec": {
            **_replicas(service),
            "selector": {"matchLabels": names.selector_labels(service.name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling_update(service)},
            "progressDeadlineSeconds": plan.runtime.startup_budget_seconds + IMAGE_PULL_SECONDS,
            "template": template,
        },
    }


def _group(plan: ServingPlan, template: Manifest, service: VLMService) -> Manifest:
    return {
        "apiVersion": LWS_API,
        "kind": LWS_KIND,
        "metadata": {"name": names.group_name(service.name)},
        "spec": {
            **_replicas(service),
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": _groups_rolling_update(service)},
            "leaderWorkerTemplate": {
                "size": plan.resources.pods,
                # A tensor-parallel group that lost a member cannot go on.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": template,
            },
        },
    }
