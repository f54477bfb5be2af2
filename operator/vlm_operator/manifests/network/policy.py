"""The NetworkPolicy of a service: who may connect to its pods, and where they may connect to.

A client may name an image by URL, which the engine fetches. So pods reach DNS, public addresses on ports 80 and 443, the
other pods of their group, and what the spec itself names; not the cluster, its nodes, or a cloud's metadata service. The
policy also selects the inspection Job. It takes effect only if the network plugin enforces NetworkPolicy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from vlm_api.names import (
    ENGINE_PORT,
    LABEL_COMPONENT,
    LABEL_MEASURED,
    LABEL_SERVICE,
    ROUTER,
    ROUTER_METRICS_PORT,
    RUNTIME_PORT,
)
from vlm_operator.facts import egress
from vlm_operator.manifests import names
from vlm_operator.manifests.inspection import hub_environment
from vlm_operator.manifests.names import Manifest
from vlm_operator.manifests.network.site import Site
from vlm_operator.plan.request import PoolRequest

NETWORK_API: Final = "networking.k8s.io/v1"
WEB_PORTS: Final = (80, 443)
# OpenShift's DNS listens on 5353 behind its Service; policies see the port of the pod.
DNS_PORTS: Final = (53, 5353)
# Models that no pod downloads.
LOCAL_MODELS: Final = ("pvc://", "oci://", "file://")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


def network_policy(
    requests: Sequence[PoolRequest],
    site: Site,
    templates: Iterable[Mapping[str, Any]] = (),
    *,
    domains_enforced: bool = False,
    closed: bool = False,
) -> Manifest | None:
    """The policy of all pools, at least one, without labels and owner; None if it is switched off.

    ``templates``: those of the pods; none before there is a plan. ``domains_enforced``: whether every engine gets
    ``spec.security.allowedMediaDomains`` and fetches images from nowhere else. ``closed``: whether engines take requests from
    the router only.
    """
    request = requests[0]
    if not (site.network_policies and request.spec.security.network_policy):
        return None
    return {
        "apiVersion": NETWORK_API,
        "kind": "NetworkPolicy",
        "metadata": {"name": names.policy_name(request.service)},
        "spec": {
            "podSelector": _selected(request),
            "policyTypes": ["Ingress", "Egress"],
            "ingress": _ingress(requests, templates, closed=closed),
            "egress": _egress(requests, site, domains_enforced),
        },
    }


def router_policy(request: PoolRequest, site: Site) -> Manifest | None:
    """The policy of the service's routers without labels and owner: in from anywhere, out to DNS and the engines."""
    if not (site.network_policies and request.spec.security.network_policy):
        return None
    engines = [_port(ENGINE_PORT), _port(RUNTIME_PORT)]
    return {
        "apiVersion": NETWORK_API,
        "kind": "NetworkPolicy",
        "metadata": {"name": names.budget_name(request.service, ROUTER)},
        "spec": {
            "podSelector": {"matchLabels": _routers(request)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [_port(ENGINE_PORT), _port(ROUTER_METRICS_PORT)]}],
            "egress": [
                {"ports": [_port(number, kind) for kind in ("UDP", "TCP") for number in DNS_PORTS]},
                {"to": [_members([request])], "ports": engines},
            ],
        },
    }


def _selected(request: PoolRequest) -> Manifest:
    labels = {"matchLabels": {LABEL_SERVICE: request.service}}
    if request.router is None:
        return labels
    return {**labels, "matchExpressions": [{"key": LABEL_COMPONENT, "operator": "NotIn", "values": [ROUTER]}]}


def _routers(request: PoolRequest) -> dict[str, str]:
    return {LABEL_SERVICE: request.service, LABEL_COMPONENT: ROUTER}


def _ingress(
    requests: Sequence[PoolRequest], templates: Iterable[Mapping[str, Any]], *, closed: bool
) -> list[Manifest]:
    """The ports of engine, runtime and the user's template from anywhere; with groups every other port from the engine's pods."""
    ours = {("TCP", ENGINE_PORT), ("TCP", RUNTIME_PORT)}
    theirs = {
        (str(port.get("protocol") or "TCP"), int(port["containerPort"]))
        for template in templates
        for kind in ("containers", "initContainers")
        for container in (template.get("spec") or {}).get(kind) or []
        for port in container.get("ports") or []
        if "containerPort" in port
    }
    request, opened = requests[0], ours | theirs
    if closed:
        # Clients go through the router; `kubectl vlm bench` asks engines by their addresses.
        opened -= {("TCP", ENGINE_PORT)}
    rules: list[Manifest] = [{"ports": [{"protocol": protocol, "port": port} for protocol, port in sorted(opened)]}]
    if closed:
        peers = [{"podSelector": {"matchLabels": of}} for of in (_routers(request), {LABEL_MEASURED: request.service})]
        rules.append({"from": peers, "ports": [_port(ENGINE_PORT)]})
    return rules + ([{"from": [_members(requests)]}] if _grouped(requests) else [])


def _egress(requests: Sequence[PoolRequest], site: Site, domains_enforced: bool) -> list[Manifest]:
    rules: list[Manifest] = [{"ports": [_port(number, kind) for kind in ("UDP", "TCP") for number in DNS_PORTS]}]
    domains = requests[0].spec.security.allowed_media_domains
    named = [host for host in domains if _opened(host)]
    # The model needs no download, and images come only from hosts inside: no public address is needed.
    local = all(request.spec.model.uri.startswith(LOCAL_MODELS) for request in requests)
    closed = local and domains_enforced and bool(domains) and len(named) == len(domains)
    if not closed:
        rules.append({"to": public(), "ports": [_port(number) for number in WEB_PORTS]})
    rules += [{"to": _peers(host), "ports": [_port(number) for number in WEB_PORTS]} for host in sorted(set(named))]
    environments = [{v["name"]: v.get("value") or "" for v in hub_environment(request)} for request in requests]
    hosts = {(host.host, host.port) for variables in environments for host in egress.destinations(variables)}
    rules += [
        {"to": _peers(host), "ports": [_port(number)]} for host, number in sorted(hosts) if not egress.is_metadata(host)
    ]
    if _grouped(requests):
        rules.append({"to": [_members(requests)]})
    return rules + [_with_defaults(rule) for rule in site.extra_egress]


def public() -> list[Manifest]:
    """Every public address."""
    return [_all_but("0.0.0.0/0", egress.closed_ipv4()), _all_but("::/0", egress.closed_ipv6())]


def _peers(host: str) -> list[Manifest]:
    """The narrowest peers for a host: its address, the namespace of its Service, or every address except the metadata services
    of clouds."""
    if block := egress.address_block(host):
        return [{"ipBlock": {"cidr": block}}]
    if namespace := egress.service_namespace(host):
        return [{"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: namespace}}}]
    return [_all_but("0.0.0.0/0", egress.METADATA_IPV4), _all_but("::/0", egress.metadata_ipv6())]


def _opened(host: str) -> bool:
    """Whether a policy can name the host; a metadata service is never opened."""
    if egress.is_metadata(host):
        return False
    return egress.address_block(host) is not None or egress.service_namespace(host) is not None


def _all_but(cidr: str, excepted: Iterable[str]) -> Manifest:
    return {"ipBlock": {"cidr": cidr, "except": list(excepted)}}


def _grouped(requests: Sequence[PoolRequest]) -> bool:
    return any(request.spec.multinode.node_count > 1 for request in requests)


def _members(requests: Sequence[PoolRequest]) -> Manifest:
    return {"podSelector": {"matchLabels": names.engine_labels(requests[0].service)}}


def _port(number: int, protocol: str = "TCP") -> Manifest:
    return {"protocol": protocol, "port": number}


def _with_defaults(rule: Mapping[str, Any]) -> Manifest:
    """As the API server completes it, since the live rules are compared as a whole."""
    ports: Sequence[Mapping[str, Any]] = rule.get("ports") or ()
    return {**rule, **({"ports": [{"protocol": "TCP", **port} for port in ports]} if ports else {})}
