"""Pods -> the devices that they have asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from vlm_api.names import LABEL_SERVICE

# Pods in these phases have given their devices back.
_ENDED = ("Succeeded", "Failed")


def in_use(pods: Iterable[Mapping[str, Any]], resource: str, namespace: str, service: str) -> Counter[str]:
    """Devices of ``resource`` per node that core/v1 Pods have asked for, without those of the service itself."""
    found: Counter[str] = Counter()
    for pod in pods:
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        own = metadata.get("namespace") == namespace and (metadata.get("labels") or {}).get(LABEL_SERVICE) == service
        ended = (pod.get("status") or {}).get("phase") in _ENDED
        if spec.get("nodeName") and not own and not ended:
            found[spec["nodeName"]] += asked_for(pod, resource)
    return found


def asked_for(pod: Mapping[str, Any], resource: str) -> int:
    """Devices of a pod: what its containers ask for together, or an init container alone where that is more."""
    spec = pod.get("spec") or {}

    def of(container: Mapping[str, Any]) -> int:
        resources = container.get("resources") or {}
        wanted = (resources.get("limits") or {}).get(resource) or (resources.get("requests") or {}).get(resource) or 0
        return int(wanted) if str(wanted).isdigit() else 0

    together = sum(of(c) for c in spec.get("containers") or [])
    return max([together, *(of(c) for c in spec.get("initContainers") or [])])
