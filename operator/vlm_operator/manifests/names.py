"""Names and labels of the operator's objects."""

from typing import Any, Final

from vlm_api.names import (
    LABEL_COMPONENT,
    LABEL_MANAGED_BY,
    LABEL_PLAN,
    LABEL_POOL,
    LABEL_ROLE,
    LABEL_SERVICE,
    LWS_WORKER_INDEX,
    MAIN_POOL,
)
from vlm_api.plan import Role
from vlm_operator.plan.request import PoolRequest

Manifest = dict[str, Any]

# Values of the component label: the engine's pods, and the Job that reads a model's files.
ENGINE: Final = "engine"
INSPECT: Final = "inspect"
MANAGER: Final = "vlm-operator"

# Volumes of the pod.
RUNTIME_VOLUME: Final = "runtime"
PLAN_VOLUME: Final = "plan"
SHARED_MEMORY_VOLUME: Final = "shared-memory"
SCRATCH_VOLUME: Final = "tmp"
MODEL_VOLUME: Final = "model"

# Ports by name.
HTTP: Final = "http"
RUNTIME: Final = "runtime"

# The pod's claim for devices, with dynamic resource allocation.
DEVICES: Final = "devices"


def pool_name(service: str, pool: str) -> str:
    """The Deployment and the autoscaler of a pool, and the start of the names of its other objects."""
    return service if pool == MAIN_POOL else f"{service}-{pool}"


def group_name(service: str, pool: str = MAIN_POOL) -> str:
    """The LeaderWorkerSet. Its controller makes a headless Service of that name, so it differs from the service's own."""
    return f"{pool_name(service, pool)}-group"


def plan_name(service: str, plan_hash: str) -> str:
    """The ConfigMap that holds a plan. It never changes, so pods of an older plan keep theirs."""
    return f"{service}-plan-{plan_hash}"


def inspection_name(service: str, digest: str) -> str:
    """The Job that reads the files of the model with that digest."""
    return f"{service}-{INSPECT}-{digest}"


def policy_name(service: str) -> str:
    """The NetworkPolicy. Users often name a policy of their own after the service, so ours has another name."""
    return f"{service}-vlm"


def budget_name(service: str, pool: str) -> str:
    """The PodDisruptionBudget of a pool, with another name than a user's own would have."""
    return f"{pool_name(service, pool)}-vlm"


def engine_labels(service: str) -> dict[str, str]:
    """Selects the engine's pods of all pools."""
    return {LABEL_SERVICE: service, LABEL_COMPONENT: ENGINE}


def serving_labels(service: str, *, grouped: bool) -> dict[str, str]:
    """Selects the pods of all pools that answer clients; of groups (``grouped``) the leaders."""
    leaders = {LWS_WORKER_INDEX: "0"} if grouped else {}
    return engine_labels(service) | {LABEL_ROLE: Role.SERVE.value} | leaders


def selector_labels(request: PoolRequest) -> dict[str, str]:
    """Selects the pods of the pool. Selectors of workloads are immutable, so these labels never change."""
    return engine_labels(request.service) | {LABEL_POOL: request.pool, LABEL_ROLE: request.role.value}


def object_labels(service: str) -> dict[str, str]:
    """Labels of every object of a service, and of its pods."""
    return {
        "app.kubernetes.io/name": "sglang",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": ENGINE,
        LABEL_MANAGED_BY: MANAGER,
        **engine_labels(service),
    }


def pool_labels(request: PoolRequest, plan_hash: str) -> dict[str, str]:
    """Labels of every object that belongs to one pool, and of its pods."""
    return object_labels(request.service) | selector_labels(request) | {LABEL_PLAN: plan_hash}


def inspection_labels(service: str) -> dict[str, str]:
    """Labels of the inspection Job and its pod. The component differs, so no selector of engine pods matches."""
    return {
        "app.kubernetes.io/name": "vlm-inspect",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": INSPECT,
        LABEL_MANAGED_BY: MANAGER,
        LABEL_SERVICE: service,
        LABEL_COMPONENT: INSPECT,
    }
