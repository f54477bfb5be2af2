"""Pods -> the devices that they have asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vlm_api.names import LABEL_SERVICE
from vlm_operator.facts.labels import count, mapping, mappings

# Pods in these phases have given their devices back.
_ENDED = ("Succeeded", "Failed")


def in_use(pods: Iterable[Mapping[str, Any]], resource: str, namespace: str, service: str) -> Counter[str]:
    """Devices of ``resource`` per node that core/v1 Pods have asked for, without those of the service itself."""
    found: Counter[str] = Counter()
    for pod in pods:
        metadata, node = mapping(pod, "metadata"), mapping(pod, "spec").get("nodeName")
        own = metadata.get("namespace") == namespace and mapping(metadata, "labels").get(LABEL_SERVICE) == service
        ended = mapping(pod, "status").get("phase") in _ENDED
        if isinstance(node, str) and node and not own and not ended:
            found[node] += asked_for(pod, resource)
    return found


def asked_for(pod: Mapping[str, Any], resource: str) -> int:
    """Devices of a pod: what its containers ask for together, or an init container alone where that is more."""
    spec = mapping(pod, "spec")

    def of(container: Mapping[str, Any]) -> int:
        limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
        return count(limits, resource) or count(requests, resource)

    together = sum(of(c) for c in mappings(spec.get("containers")))
    return max([together, *(of(c) for c in mappings(spec.get("initContainers")))])


def asks_for_devices(pod: Mapping[str, Any]) -> bool:
    """Whether a pod asks for anything that is no resource of Kubernetes itself: those have names with a domain."""
    return any("/" in str(name) for part in _asked(pod) for name in part)


def reduced(pod: Mapping[str, Any]) -> dict[str, Any]:
    """As much of a pod as ``in_use`` looks at: some hundred bytes of the ten thousand that a pod has."""
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    labels = mapping(metadata, "labels")
    kinds = ("containers", "initContainers")
    return {
        "metadata": {
            "namespace": metadata.get("namespace"),
            "labels": {LABEL_SERVICE: labels[LABEL_SERVICE]} if LABEL_SERVICE in labels else {},
        },
        "spec": {
            "nodeName": spec.get("nodeName"),
            **{kind: [{"resources": mapping(c, "resources")} for c in mappings(spec.get(kind))] for kind in kinds},
        },
        "status": {"phase": mapping(pod, "status").get("phase")},
    }


def _asked(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    spec = mapping(pod, "spec")
    for container in (*mappings(spec.get("containers")), *mappings(spec.get("initContainers"))):
        yield mapping(container, "resources", "limits")
        yield mapping(container, "resources", "requests")
