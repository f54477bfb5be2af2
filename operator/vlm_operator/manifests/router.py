"""The router's objects: an Envoy with its configuration in its arguments, and a headless Service for each pool."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_api.names import (
    ENGINE_PORT,
    LABEL_COMPONENT,
    LABEL_POOL,
    LABEL_SERVICE,
    ROUTER,
    ROUTER_METRICS_PORT,
)
from vlm_api.plan import RouterPlan
from vlm_operator.errors import InvalidInput
from vlm_operator.fleet.envoy import CONNECTION_SECONDS, Routing, bootstrap
from vlm_operator.fleet.router import RoutedPool, backends_name, routing_of
from vlm_operator.manifests import names
from vlm_operator.manifests.names import Manifest
from vlm_operator.manifests.pod.merge import merge_template
from vlm_operator.plan.request import PoolRequest

METRICS: Final = "metrics"
CONTAINER: Final = "router"
# Any id but root's: Envoy writes no file.
USER_ID: Final = 65532
# After its connections have ended by themselves, a router has nothing left to do.
MARGIN_SECONDS: Final = 15


def router_name(service: str) -> str:
    """The Deployment."""
    return f"{service}-{ROUTER}"


def router_selector(service: str) -> dict[str, str]:
    """Selects the routers."""
    return {LABEL_SERVICE: service, LABEL_COMPONENT: ROUTER}


def router_labels(service: str) -> dict[str, str]:
    """Labels of the router's objects and pods."""
    return {
        **names.object_labels(service),
        "app.kubernetes.io/name": "envoy",
        "app.kubernetes.io/component": ROUTER,
        **router_selector(service),
        LABEL_POOL: ROUTER,
    }


def backends(request: PoolRequest, *, grouped: bool) -> Manifest:
    """The headless Service whose addresses are those of a pool's ready engines, without labels and owner."""
    leaders = names.serving_labels(request.service, grouped=grouped)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": backends_name(request.service, request.pool)},
        "spec": {
            "clusterIP": "None",
            "selector": {**leaders, LABEL_POOL: request.pool},
            "ports": [{"name": names.HTTP, "port": ENGINE_PORT, "targetPort": names.HTTP, "protocol": "TCP"}],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
        },
    }


def router_template(
    plan: RouterPlan, pools: Sequence[RoutedPool], service: str, template: Mapping[str, Any]
) -> Manifest:
    """The PodTemplateSpec of the routers. ``template`` is ``spec.router.template``.

    Raises InvalidInput for a template that no pod can have.
    """
    routing = routing_of(plan, pools)
    drain = CONNECTION_SECONDS + routing.max_request_seconds + MARGIN_SECONDS
    ours: Manifest = {
        "metadata": {"labels": router_labels(service)},
        "spec": {
            "containers": [_container(plan, routing, drain)],
            "terminationGracePeriodSeconds": drain + MARGIN_SECONDS,
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "runAsGroup": USER_ID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": router_selector(service)},
                }
            ],
        },
    }
    merged = merge_template(ours, template, "spec.router.template")
    if not any(c.get("name") == CONTAINER for c in (merged.get("spec") or {}).get("containers") or []):
        raise InvalidInput(
            "spec.router.template.spec.containers", f"the container {CONTAINER!r} is the router: remove what deletes it"
        )
    if not router_labels(service).items() <= ((merged.get("metadata") or {}).get("labels") or {}).items():
        raise InvalidInput("spec.router.template.metadata.labels", "changes labels of the operator: add others only")
    return merged


def router_deployment(plan: RouterPlan, template: Manifest, service: str, *, suspended: bool) -> Manifest:
    """The Deployment, without labels and owner. ``template`` is ``router_template``."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": router_name(service)},
        "spec": {
            "replicas": 0 if suspended else plan.replicas,
            "selector": {"matchLabels": router_selector(service)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": template,
        },
    }


def router_budget(service: str) -> Manifest:
    """Lets evictions take one router at a time, without labels and owner."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": names.budget_name(service, ROUTER)},
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": router_selector(service)},
        },
    }


def _container(plan: RouterPlan, routing: Routing, drain: int) -> Manifest:
    memory = next(f"{s.value}Mi" for s in plan.settings if s.name == "memoryMiB")
    ready = {"httpGet": {"path": "/ready", "port": METRICS}}
    return {
        "name": CONTAINER,
        "image": plan.image,
        "command": ["envoy"],
        "args": [
            "--config-yaml",
            json.dumps(bootstrap(routing), sort_keys=True, separators=(",", ":")),
            "--disable-hot-restart",
            "--log-level",
            "warn",
            # Threads each have their own view of the engines' load: few see it better.
            "--concurrency",
            "2",
        ],
        "ports": [
            {"name": names.HTTP, "containerPort": ENGINE_PORT, "protocol": "TCP"},
            {"name": METRICS, "containerPort": ROUTER_METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "500m", "memory": memory}, "limits": {"memory": memory}},
        "startupProbe": {**ready, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {**ready, "periodSeconds": 5},
        "livenessProbe": {**ready, "periodSeconds": 10, "failureThreshold": 6, "timeoutSeconds": 5},
        # New connections go elsewhere; those that are open end by themselves, between two requests.
        "lifecycle": {"preStop": {"sleep": {"seconds": drain}}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
