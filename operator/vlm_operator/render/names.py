"""What the operator's objects are called, and the labels by which they are found."""

from __future__ import annotations

from typing import Any, Final

from vlm_api.names import LABEL_COMPONENT, LABEL_MANAGED_BY, LABEL_PLAN, LABEL_SERVICE

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

# The pod's claim for devices, where they come through dynamic resource allocation.
DEVICES: Final = "devices"


def plan_name(service: str, plan_hash: str) -> str:
    """The ConfigMap that holds a plan. It never changes, so pods of an older plan keep theirs."""
    return f"{service}-plan-{plan_hash}"


def inspection_name(service: str, digest: str) -> str:
    """The Job that reads the files of the model which the digest stands for."""
    return f"{service}-{INSPECT}-{digest}"


def group_name(service: str) -> str:
    """The LeaderWorkerSet. Not the service's own name: its controller makes a headless Service of that name."""
    return f"{service}-group"


def policy_name(service: str) -> str:
    """The NetworkPolicy. Not the service's own name, which people give to policies of their own."""
    return f"{service}-vlm"


def selector_labels(service: str) -> dict[str, str]:
    """What selects the engine's pods. Part of immutable fields, so it never changes."""
    return {LABEL_SERVICE: service, LABEL_COMPONENT: ENGINE}


def object_labels(service: str, plan_hash: str | None = None) -> dict[str, str]:
    """Labels of everything that is made for a service; of its pods without ``plan_hash``, which is added last."""
    labels = {
        "app.kubernetes.io/name": "sglang",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": ENGINE,
        LABEL_MANAGED_BY: MANAGER,
        **selector_labels(service),
    }
    return labels if plan_hash is None else labels | {LABEL_PLAN: plan_hash}


def inspection_labels(service: str) -> dict[str, str]:
    """Labels of the inspecting Job and its pod. Another component, so that nothing that selects engines finds it."""
    return {
        "app.kubernetes.io/name": "vlm-inspect",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": INSPECT,
        LABEL_MANAGED_BY: MANAGER,
        LABEL_SERVICE: service,
        LABEL_COMPONENT: INSPECT,
    }
