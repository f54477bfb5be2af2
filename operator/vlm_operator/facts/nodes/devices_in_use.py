"""Pods -> the devices that they request."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from vlm_api.names import LABEL_SERVICE
from vlm_operator.facts.nodes.labels import count, mapping, mappings

# Pods in these phases have released their devices.
_ENDED = ("Succeeded", "Failed")


class Asking(NamedTuple):
    """A pod on a node that requests devices. Nothing else is kept, since a cluster may have tens of thousands of pods."""

    node: str
    namespace: str
    service: str | None
    """The VLMService in the pod's label."""
    devices: dict[str, int]
    """The number of each extended resource."""


def in_use(pods: Iterable[Asking], resource: str, namespace: str, service: str) -> Counter[str]:
    """Devices of ``resource`` per node that pods request, without the service's own pods."""
    found: Counter[str] = Counter()
    for pod in pods:
        if (number := pod.devices.get(resource)) and (pod.service != service or pod.namespace != namespace):
            found[pod.node] += number
    return found


def asking(pods: Iterable[Mapping[str, Any]]) -> Iterator[Asking]:
    """The core/v1 Pods that hold devices of a node. Invalid entries are skipped."""
    for pod in pods:
        metadata, node = mapping(pod, "metadata"), mapping(pod, "spec").get("nodeName")
        if not isinstance(node, str) or not node or mapping(pod, "status").get("phase") in _ENDED:
            continue
        if devices := _devices(mapping(pod, "spec")):
            service = mapping(metadata, "labels").get(LABEL_SERVICE)
            yield Asking(node, str(metadata.get("namespace")), service if isinstance(service, str) else None, devices)


def _devices(spec: Mapping[str, Any]) -> dict[str, int]:
    """The sum over a pod's containers, or an init container's request if that is higher."""
    together: Counter[str] = Counter()
    for container in mappings(spec.get("containers")):
        together.update(_of(container))
    for container in mappings(spec.get("initContainers")):
        together |= _of(container)
    return {name: number for name, number in together.items() if number > 0}


def _of(container: Mapping[str, Any]) -> Counter[str]:
    limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    # The name of an extended resource has a domain.
    names = {str(name) for part in (limits, requests) for name in part if "/" in str(name)}
    return Counter({name: count(limits, name) or count(requests, name) for name in names})
