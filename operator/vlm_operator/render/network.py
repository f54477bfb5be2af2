"""The NetworkPolicy of a service: who may open connections to its pods, and where they may go.

A client may name an image by URL, which the engine fetches. So pods reach DNS, public addresses on the web's two ports,
the members of their own group, and what the spec itself names; not the cluster, its nodes, or a cloud's metadata service.
It selects the Job that reads the model's files as well, which goes the same way out. A network plugin that does not
enforce policies, such as the plain bridge, takes it for a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_api.names import ENGINE_PORT, LABEL_SERVICE, RUNTIME_PORT
from vlm_api.status import VLMService
from vlm_operator import egress
from vlm_operator.render import names
from vlm_operator.render.inspection import way_to_hub
from vlm_operator.render.names import Manifest

NETWORK_API: Final = "networking.k8s.io/v1"
WEB_PORTS: Final = (80, 443)
# OpenShift's DNS listens on 5353 behind its Service; policies see the port of the pod.
DNS_PORTS: Final = (53, 5353)
# Models that no pod downloads.
LOCAL_MODELS: Final = ("pvc://", "oci://", "file://")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


@dataclass(frozen=True)
class Site:
    """What the operator's installer decided for all services."""

    network_policies: bool = True
    extra_egress: tuple[Manifest, ...] = ()
    """NetworkPolicyEgressRules for what every service needs besides, such as a private registry of models."""


USUAL_SITE: Final = Site()


def network_policy(
    service: VLMService, site: Site, template: Mapping[str, Any] | None = None, *, domains_enforced: bool = False
) -> Manifest | None:
    """The policy without labels and owner; None where it is switched off.

    ``template``: the pods' template; None while there is no plan yet. ``domains_enforced``: whether the engine is told
    ``spec.security.allowedMediaDomains``, so that nothing else is fetched.
    """
    if not (site.network_policies and service.spec.security.network_policy):
        return None
    return {
        "apiVersion": NETWORK_API,
        "kind": "NetworkPolicy",
        "metadata": {"name": names.policy_name(service.name)},
        "spec": {
            "podSelector": {"matchLabels": {LABEL_SERVICE: service.name}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": _ingress(service, template),
            "egress": _egress(service, site, domains_enforced),
        },
    }


def _ingress(service: VLMService, template: Mapping[str, Any] | None) -> list[Manifest]:
    """Engine, runtime, and what the user's template opens, from anywhere; everything else inside the group only."""
    ours = {("TCP", ENGINE_PORT), ("TCP", RUNTIME_PORT)}
    theirs = {
        (str(port.get("protocol") or "TCP"), int(port["containerPort"]))
        for kind in ("containers", "initContainers")
        for container in ((template or {}).get("spec") or {}).get(kind) or []
        for port in container.get("ports") or []
        if "containerPort" in port
    }
    rules: list[Manifest] = [
        {"ports": [{"protocol": protocol, "port": port} for protocol, port in sorted(ours | theirs)]}
    ]
    return rules + ([{"from": [_members(service)]}] if _grouped(service) else [])


def _egress(service: VLMService, site: Site, domains_enforced: bool) -> list[Manifest]:
    rules: list[Manifest] = [{"ports": [_port(number, kind) for kind in ("UDP", "TCP") for number in DNS_PORTS]}]
    domains = service.spec.security.allowed_media_domains
    named = [host for host in domains if _inside(host)]
    # Images from named hosts inside only, and a model that is there already: nothing out there is needed.
    local = service.spec.model.uri.startswith(LOCAL_MODELS)
    closed = local and domains_enforced and bool(domains) and len(named) == len(domains)
    if not closed:
        rules.append({"to": public(), "ports": [_port(number) for number in WEB_PORTS]})
    rules += [{"to": _peers(host)} for host in sorted(set(named))]
    variables = {v["name"]: v.get("value") or "" for v in way_to_hub(service)}
    ways = {(way.host, way.port) for way in egress.ways_out(variables)}
    rules += [{"to": _peers(host), "ports": [_port(number)]} for host, number in sorted(ways)]
    if _grouped(service):
        rules.append({"to": [_members(service)]})
    return rules + [_with_defaults(rule) for rule in site.extra_egress]


def public() -> list[Manifest]:
    """Every public address."""
    return [_all_but("0.0.0.0/0", egress.closed_ipv4()), _all_but("::/0", egress.closed_ipv6())]


def _peers(host: str) -> list[Manifest]:
    """A host as exactly as a policy can say it: an address, the namespace of a Service, or every address but those
    where clouds give credentials away."""
    if block := egress.address_block(host):
        return [{"ipBlock": {"cidr": block}}]
    if namespace := egress.service_namespace(host):
        return [{"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: namespace}}}]
    return [_all_but("0.0.0.0/0", egress.METADATA_IPV4), _all_but("::/0", egress.METADATA_IPV6)]


def _inside(host: str) -> bool:
    return egress.address_block(host) is not None or egress.service_namespace(host) is not None


def _all_but(cidr: str, excepted: Iterable[str]) -> Manifest:
    return {"ipBlock": {"cidr": cidr, "except": list(excepted)}}


def _grouped(service: VLMService) -> bool:
    return service.spec.multinode.node_count > 1


def _members(service: VLMService) -> Manifest:
    return {"podSelector": {"matchLabels": names.selector_labels(service.name)}}


def _port(number: int, protocol: str = "TCP") -> Manifest:
    return {"protocol": protocol, "port": number}


def _with_defaults(rule: Mapping[str, Any]) -> Manifest:
    """As the API server completes it, so that the live object can be compared with it word for word."""
    ports: Sequence[Mapping[str, Any]] = rule.get("ports") or ()
    return {**rule, **({"ports": [{"protocol": "TCP", **port} for port in ports]} if ports else {})}
