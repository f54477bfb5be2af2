"""Every object of a service, in the order in which they are applied: what all pools share, then each pool's own."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from vlm_api.names import ENGINE_PORT, PLAN_KEY, POD_TEMPLATE_KEY
from vlm_api.plan import RouterPlan, ServingPlan
from vlm_operator.fleet.router import RoutedPool
from vlm_operator.manifests import names
from vlm_operator.manifests.monitor import pod_monitor
from vlm_operator.manifests.names import Manifest
from vlm_operator.manifests.network.policy import network_policy, router_policy
from vlm_operator.manifests.network.site import USUAL_SITE, Site
from vlm_operator.manifests.pod.scheduling import claim_spec, claim_template_name
from vlm_operator.manifests.router import (
    backends,
    router_budget,
    router_deployment,
    router_labels,
    router_selector,
    router_template,
)
from vlm_operator.manifests.workload import autoscaler, disruption_budget, workload
from vlm_operator.plan.digest import stored
from vlm_operator.plan.request import PoolRequest

MEDIA_DOMAINS: Final = "allowed_media_domains"


class Pool(NamedTuple):
    """A pool of a service, planned."""

    plan: ServingPlan
    pod_template: Manifest
    """Made from the plan, or stored with it in the plan's ConfigMap."""
    request: PoolRequest


class RouterPart(NamedTuple):
    """A service's router, planned."""

    plan: RouterPlan
    pools: Sequence[RoutedPool]
    """All pools that it sends requests to, also those without a plan yet."""
    answers: bool
    """Whether the service's address is the router's; otherwise it is still the engines' own, until a router is ready."""
    closed: bool = True
    """Whether engines take requests from the router only: not before the address has been the router's for a while."""


def objects(
    pools: Sequence[Pool],
    owner: dict[str, Any] | None = None,
    site: Site = USUAL_SITE,
    router: RouterPart | None = None,
) -> list[Manifest]:
    """The objects of a service, ``pools`` with sealed plans (with a hash) and the pod templates stored with them.

    A plan that stays renders the same pods whatever the operator's version. Names, labels and selectors come from the requests:
    whoever may edit ConfigMaps decides what a stored plan says. ``owner`` is the owner reference to put on all
    objects; None leaves it out, as in a plan that is only printed. ``site`` holds the installer's decisions about networks.
    """
    shared = service_objects(pools, owner, site, router)
    return shared + [o for pool in pools for o in pool_objects(pool, owner)]


def service_objects(
    pools: Sequence[Pool], owner: dict[str, Any] | None, site: Site, router: RouterPart | None = None
) -> list[Manifest]:
    """The objects that all pools share, from fields of the spec that no pool has for itself."""
    request, plans = pools[0].request, [pool.plan for pool in pools]
    enforced = all(any(s.name == MEDIA_DOMAINS and s.applied for s in plan.settings) for plan in plans)
    requests = [pool.request for pool in pools]
    templates, closed = [pool.pod_template for pool in pools], router is not None and router.closed
    policy = network_policy(requests, site, templates, domains_enforced=enforced, closed=closed)
    address = _service(plans, request)
    if router is not None and router.answers:
        address["spec"]["selector"] = router_selector(request.service)
    shared = [*([] if policy is None else [policy]), address]
    if request.spec.metrics.pod_monitor:
        shared.append(pod_monitor(request.service))
    made = [_with_metadata(o, request, names.object_labels(request.service), owner) for o in shared]
    return made + (_router_objects(router, request, owner, site) if router is not None else [])


def _router_objects(
    router: RouterPart, request: PoolRequest, owner: dict[str, Any] | None, site: Site
) -> list[Manifest]:
    assert request.router is not None
    policy = router_policy(request, site)
    requests = [pool.request for pool in router.pools]
    own = [
        *([] if policy is None else [policy]),
        *(backends(r, grouped=r.spec.multinode.node_count > 1) for r in requests),
        router_deployment(
            router.plan,
            router_template(router.plan, router.pools, request.service, request.router.template),
            request.service,
            suspended=all(r.spec.suspend for r in requests),
        ),
    ]
    if router.plan.replicas > 1:
        own.append(router_budget(request.service))
    return [_with_metadata(o, request, router_labels(request.service), owner) for o in own]


def pool_objects(pool: Pool, owner: dict[str, Any] | None) -> list[Manifest]:
    """The objects of one pool."""
    plan, _, request = pool
    own = [_plan_config_map(pool)]
    if plan.hardware.claims and plan.resources.devices_per_pod > 0:
        own.append(_claim_template(plan, request))
    own.append(workload(plan, applied_template(pool), request))
    if request.spec.scaling is not None:
        own.append(autoscaler(plan, request))
    if (budget := disruption_budget(plan, request)) is not None:
        own.append(budget)
    return [_with_metadata(o, request, names.pool_labels(request, plan.hash), owner) for o in own]


def policy_before_plan(requests: Sequence[PoolRequest], owner: dict[str, Any], site: Site) -> list[Manifest]:
    """The NetworkPolicy alone, for the inspection Job, which runs before there is a plan."""
    request, policy = requests[0], network_policy(requests, site)
    return [] if policy is None else [_with_metadata(policy, request, names.object_labels(request.service), owner)]


def applied_template(pool: Pool) -> Manifest:
    """The stored pod template with what is not stored: the labels of the pool and the plan, and the plan's ConfigMap."""
    plan, pod_template, request = pool
    metadata, spec = pod_template.get("metadata") or {}, pod_template["spec"]
    labels = {**(metadata.get("labels") or {}), **names.pool_labels(request, plan.hash)}
    config_map = names.plan_name(request.service, plan.hash)
    volumes = [_with_config_map(volume, config_map) for volume in spec.get("volumes") or []]
    return {**pod_template, "metadata": {**metadata, "labels": labels}, "spec": {**spec, "volumes": volumes}}


def _with_config_map(volume: Manifest, name: str) -> Manifest:
    if volume["name"] != names.PLAN_VOLUME or "configMap" not in volume:
        return volume
    return {**volume, "configMap": {**volume["configMap"], "name": name}}


def _with_metadata(
    manifest: Manifest, request: PoolRequest, labels: dict[str, str], owner: dict[str, Any] | None
) -> Manifest:
    metadata = {**manifest["metadata"], "namespace": request.namespace, "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {**manifest, "metadata": metadata}


def _plan_config_map(pool: Pool) -> Manifest:
    plan, pod_template, request = pool
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.plan_name(request.service, plan.hash)},
        "immutable": True,
        "data": {PLAN_KEY: stored(plan.without_manifests().to_api()), POD_TEMPLATE_KEY: stored(pod_template)},
    }


def _service(plans: Sequence[ServingPlan], request: PoolRequest) -> Manifest:
    grouped = all(plan.resources.pods > 1 for plan in plans)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": request.service},
        "spec": {
            "selector": names.serving_labels(request.service, grouped=grouped),
            "ports": [{"name": names.HTTP, "port": ENGINE_PORT, "targetPort": names.HTTP, "protocol": "TCP"}],
            # The defaults, written out: see kube.apply.CREATED_BY_POST.
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
        },
    }


def _claim_template(plan: ServingPlan, request: PoolRequest) -> Manifest:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": claim_template_name(plan, request)},
        "spec": {"spec": claim_spec(plan)},
    }
