"""Every object that a service is made of, in the order in which they are applied."""

from __future__ import annotations

import re
from typing import Any, Final

from vlm_api.names import ENGINE_PORT, LABEL_PLAN, LABEL_SERVICE, PLAN_KEY, POD_TEMPLATE_KEY
from vlm_api.plan import ServingPlan
from vlm_api.status import VLMService
from vlm_operator.render import names
from vlm_operator.render.claims import claim_spec, claim_template_name
from vlm_operator.render.digest import stored
from vlm_operator.render.names import Manifest
from vlm_operator.render.network import USUAL_SITE, Site, network_policy
from vlm_operator.render.pod import SCHEME_ANNOTATION, engine_scheme
from vlm_operator.render.workload import LWS_WORKER_INDEX, target_reference, workload

# What the custom metrics API has to serve for each pod: the requests that it holds (docs/autoscaling.md).
IN_FLIGHT_METRIC: Final = "vlmserve_requests_in_flight"


def discovered(kind: str, name: str) -> str:
    """What Prometheus calls a pod's label or annotation before its own labels are made."""
    return f"__meta_kubernetes_pod_{kind}_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"


# Labels that the chart's rules and dashboards go by, from the pods' own.
TARGET_LABELS: Final = [
    {
        "sourceLabels": [discovered("label", label)],
        "targetLabel": target,
        "action": "replace",
    }
    for label, target in ((LABEL_SERVICE, "vlmservice"), (LABEL_PLAN, "vlmplan"))
]
# An engine with a certificate is asked by https. The small server of a group's followers has none, also where the head has.
SCHEME: Final = {
    "sourceLabels": [
        discovered("annotation", SCHEME_ANNOTATION),
        discovered("label", LWS_WORKER_INDEX),
    ],
    "regex": "(https);0?",
    "targetLabel": "__scheme__",
    "replacement": "$1",
    "action": "replace",
}
# The certificate is made out for the service's name, and Prometheus asks each pod by its address.
ANY_CERTIFICATE: Final = {"insecureSkipVerify": True}
# The engine's names begin with "sglang:". Its client library answers with "sglang_" where Prometheus does not say that it
# takes any name, as Prometheus 2 does not; rules and dashboards know the engine's own.
METRIC_NAMES: Final = [
    {
        "sourceLabels": ["__name__"],
        "regex": "sglang_(.+)",
        "targetLabel": "__name__",
        "replacement": "sglang:$1",
        "action": "replace",
    }
]
DEFAULT_TARGET_IN_FLIGHT: Final = 32
MEDIA_DOMAINS: Final = "allowed_media_domains"
TARGET_SHARE: Final = 0.8


def objects(
    plan: ServingPlan,
    pod_template: dict[str, Any],
    service: VLMService,
    owner: dict[str, Any] | None = None,
    site: Site = USUAL_SITE,
) -> list[Manifest]:
    """The objects of a sealed plan (one with a hash).

    ``pod_template`` is the stored one, so that a plan that stays renders the same pods whatever the operator's version.
    ``owner`` is the owner reference to put on all of them; None leaves it out, as in a plan that is only shown. ``site``
    is what the operator's installer decided about networks.
    """
    template = with_hash(pod_template, service.name, plan.hash)
    found = [_plan_config_map(plan, pod_template, service)]
    enforced = any(s.name == MEDIA_DOMAINS and s.applied for s in plan.settings)
    if policy := network_policy(service, site, pod_template, domains_enforced=enforced):
        found.append(policy)
    if plan.hardware.claims and plan.resources.devices_per_pod > 0:
        found.append(_claim_template(plan, service))
    found += [_service(plan, service), workload(plan, template, service)]
    if service.spec.scaling is not None:
        found.append(_autoscaler(plan, service))
    if service.spec.metrics.pod_monitor:
        found.append(_pod_monitor(plan, pod_template, service))
    return [_with_metadata(o, service, owner, plan.hash) for o in found]


def policy_before_plan(service: VLMService, owner: dict[str, Any], site: Site) -> list[Manifest]:
    """The NetworkPolicy alone, for the Job that reads the model's files before there is a plan."""
    policy = network_policy(service, site)
    return [] if policy is None else [_with_metadata(policy, service, owner)]


def with_hash(pod_template: dict[str, Any], service: str, plan_hash: str) -> Manifest:
    """The pod template that is applied: labelled with the plan's hash and mounting its ConfigMap."""
    metadata, spec = pod_template.get("metadata") or {}, pod_template["spec"]
    labels = {**(metadata.get("labels") or {}), LABEL_PLAN: plan_hash}
    volumes = [_named_plan(v, names.plan_name(service, plan_hash)) for v in spec.get("volumes") or []]
    return {**pod_template, "metadata": {**metadata, "labels": labels}, "spec": {**spec, "volumes": volumes}}


def _named_plan(volume: Manifest, config_map: str) -> Manifest:
    if volume["name"] != names.PLAN_VOLUME or "configMap" not in volume:
        return volume
    return {**volume, "configMap": {**volume["configMap"], "name": config_map}}


def _with_metadata(
    manifest: Manifest, service: VLMService, owner: dict[str, Any] | None, plan_hash: str | None = None
) -> Manifest:
    metadata = {
        **manifest["metadata"],
        "namespace": service.namespace,
        "labels": names.object_labels(service.name, plan_hash),
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {**manifest, "metadata": metadata}


def _plan_config_map(plan: ServingPlan, pod_template: dict[str, Any], service: VLMService) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.plan_name(service.name, plan.hash)},
        "immutable": True,
        "data": {
            PLAN_KEY: stored(plan.without_manifests().to_api()),
            POD_TEMPLATE_KEY: stored(pod_template),
        },
    }


def _service(plan: ServingPlan, service: VLMService) -> Manifest:
    selector = names.selector_labels(service.name)
    if plan.resources.pods > 1:
        selector[LWS_WORKER_INDEX] = "0"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service.name},
        "spec": {
            "selector": selector,
            "ports": [{"name": names.HTTP, "port": ENGINE_PORT, "targetPort": names.HTTP, "protocol": "TCP"}],
        },
    }


def _autoscaler(plan: ServingPlan, service: VLMService) -> Manifest:
    scaling = service.spec.scaling
    assert scaling is not None
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": service.name},
        "spec": {
            "scaleTargetRef": target_reference(plan, service),
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": IN_FLIGHT_METRIC},
                        "target": {"type": "AverageValue", "averageValue": str(target_in_flight(service))},
                    },
                }
            ],
        },
    }


def target_in_flight(service: VLMService) -> int:
    """Requests in flight per replica that the autoscaler aims at."""
    if service.spec.scaling is not None and service.spec.scaling.target_in_flight is not None:
        return service.spec.scaling.target_in_flight
    concurrency = service.spec.workload.concurrency
    return DEFAULT_TARGET_IN_FLIGHT if concurrency is None else max(1, int(concurrency * TARGET_SHARE))


def _pod_monitor(plan: ServingPlan, pod_template: dict[str, Any], service: VLMService) -> Manifest:
    certified: Manifest = {"relabelings": [*TARGET_LABELS, SCHEME], "tlsConfig": ANY_CERTIFICATE}
    scheme = engine_scheme(plan)
    if scheme != "http" and SCHEME_ANNOTATION not in ((pod_template.get("metadata") or {}).get("annotations") or {}):
        # Pods of a plan that stays from a release which did not annotate them.
        certified["scheme"] = scheme
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": service.name},
        "spec": {
            "selector": {"matchLabels": names.selector_labels(service.name)},
            "podMetricsEndpoints": [
                {
                    "port": port,
                    "path": "/metrics",
                    "relabelings": TARGET_LABELS,
                    "metricRelabelings": METRIC_NAMES,
                    **(certified if port == names.HTTP else {}),
                }
                for port in (names.HTTP, names.RUNTIME)
            ],
        },
    }


def _claim_template(plan: ServingPlan, service: VLMService) -> Manifest:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": claim_template_name(plan, service.name)},
        "spec": {"spec": claim_spec(plan)},
    }
