"""Pods -> the devices that they have asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
