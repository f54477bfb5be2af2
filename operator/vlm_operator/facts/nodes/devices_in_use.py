"""Pods -> the devices that they request."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from vlm_api.names import LABEL_POOL, LABEL_SERVICE, MAIN_POOL
from vlm_operator.facts.nodes.labels import count, mapping, mappings

# Pods in these phases have released their devices.
_ENDED = ("Succeeded", "Failed")


class Asking(NamedTuple):
    """A pod on a node that requests devices. Nothing else is kept, since a cluster may have tens of thousands of pods."""

    node: str
    namespace: str
    service: str | None
    """The VLMService in the pod's label."""
    pool: str
    """The pool in its label."""
    devices: dict[str, int]
    """The number of each extended resource."""


def in_use(pods: Iterable[Asking], resource: str, namespace: str, service: str, pool: str = MAIN_POOL) -> Counter[str]:
    """Devices of ``resource`` per node that pods request, without the pool's own pods."""
    own = (namespace, service, pool)
    found: Counter[str] = Counter()
    for pod in pods:
        if (number := pod.devices.get(resource)) and (pod.namespace, pod.service, pod.pool) != own:
            found[pod.node] += number
    return found


def asking(pods: Iterable[Mapping[str, Any]]) -> Iterator[Asking]:
    """The core/v1 Pods that hold devices of a node. Invalid entries are skipped."""
    for pod in pods:
        metadata, node = mapping(pod, "metadata"), mapping(pod, "spec").get("nodeName")
        if not isinstance(node, str) or not node or mapping(pod, "status").get("phase") in _ENDED:
            continue
        if devices := _devices(mapping(pod, "spec")):
            labels = mapping(metadata, "labels")
            service, pool = labels.get(LABEL_SERVICE), str(labels.get(LABEL_POOL) or MAIN_POOL)
            namespace = str(metadata.get("namespace"))
            yield Asking(node, namespace, service if isinstance(service, str) else None, pool, devices)


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
