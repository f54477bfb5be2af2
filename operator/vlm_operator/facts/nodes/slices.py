"""ResourceSlices of NVIDIA's driver for dynamic resource allocation (gpu.nvidia.com) -> a node's GPUs.

With this driver, a node may have neither GPU labels nor an extended resource.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from vlm_api.plan import Sharing
from vlm_operator.facts.nodes.discovery import Reading
from vlm_operator.facts.nodes.labels import mapping, mappings, quantity
from vlm_operator.facts.types import ComputeCapability, GpuFacts

DRIVER: Final = "gpu.nvidia.com"
_BLOCKING: Final = ("NoSchedule", "NoExecute")
_ATTRIBUTES: Final = ("type", "productName", "profile", "cudaComputeCapability", "cudaDriverVersion", "driverVersion")


def by_node(slices: Iterable[Mapping[str, Any]]) -> Callable[[str], list[Mapping[str, Any]]]:
    """A lookup of a node's slices, so that not every node scans every slice."""
    named: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    anywhere: list[Mapping[str, Any]] = []
    for item in slices:
        spec = mapping(item, "spec")
        if "nodeName" not in spec:
            anywhere.append(item)
        elif isinstance(spec["nodeName"], str):
            named[spec["nodeName"]].append(item)
    return lambda node: [*named.get(node, ()), *anywhere]


def reduced(item: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a slice's spec that ``claimable`` reads. Equal devices share one object: a node with MIG may list
    hundreds of devices, each with a page of counters."""
    spec, alike = mapping(item, "spec"), dict[str, dict[str, Any]]()
    devices = [_reduced_device(device) for device in mappings(spec.get("devices"))]
    return {
        **{key: spec[key] for key in ("driver", "nodeName", "pool") if key in spec},
        "devices": [alike.setdefault(repr(device), device) for device in devices],
    }


def _reduced_device(device: Mapping[str, Any]) -> dict[str, Any]:
    body = mapping(device, "basic") or device
    attributes, capacity = mapping(body, "attributes"), mapping(body, "capacity")
    names = {prefix + name for name in _ATTRIBUTES for prefix in ("", f"{DRIVER}/")}
    return {
        "attributes": {name: attributes[name] for name in sorted(names) if name in attributes},
        "capacity": {"memory": capacity["memory"]} if "memory" in capacity else {},
        "taints": [{"effect": taint.get("effect")} for taint in mappings(body.get("taints"))],
    }


def claimable(slices: Sequence[Mapping[str, Any]], node: str) -> Reading | None:
    """The facts about the GPUs of ``node`` in its slices; None if they list none. Reads ``resource.k8s.io`` v1, v1beta2
    and v1beta1, which has attributes under ``basic``."""
    pools, complete = _newest(slices, node)
    devices = [_Device(device) for spec in pools for device in mappings(spec.get("devices"))]
    free = [device for device in devices if not device.tainted]
    whole = [device for device in free if device.kind == "gpu"]
    chosen = whole or [device for device in free if device.kind == "mig"]
    if not chosen:
        if not devices:
            return None
        return Reading(GpuFacts(source="dra", claims=True), _why_none(devices))
    models = Counter(device.model for device in chosen)
    model = min(models, key=lambda each: (-models[each], str(each)))
    product, capability, memory_mib, driver = model
    ambiguous = None
    if len(models) > 1:
        ambiguous = f"its ResourceSlices list {len(models)} different GPU models; a claim may get any of them"
    elif not complete:
        ambiguous = "its ResourceSlices are not complete yet; the node may have more GPUs"
    gpu = GpuFacts(
        source="dra",
        product=product,
        compute_capability=capability,
        memory_mib=memory_mib,
        devices=models[model],
        allocatable=len(chosen),
        sharing=Sharing.NONE if whole else Sharing.MIG,
        driver=driver,
        cuda=next((device.cuda for device in chosen if device.model == model), None),
        claims=True,
        ambiguous=ambiguous,
    )
    return Reading(gpu)


def _newest(slices: Sequence[Mapping[str, Any]], node: str) -> tuple[list[Mapping[str, Any]], bool]:
    """The specs of the newest generation of each of the node's pools, and whether every pool is complete."""
    pools: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for item in slices:
        spec = mapping(item, "spec")
        if spec.get("driver") == DRIVER and spec.get("nodeName", node) == node:
            pool = mapping(spec, "pool")
            generations = pools.setdefault(str(pool.get("name")), {})
            generations.setdefault(_whole(pool.get("generation")), []).append(spec)
    newest = [generations[max(generations)] for _, generations in sorted(pools.items())]
    complete = all(len(specs) >= _whole(mapping(specs[0], "pool").get("resourceSliceCount")) for specs in newest)
    return [spec for specs in newest for spec in specs], complete


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _why_none(devices: Iterable[_Device]) -> str:
    if any(device.kind == "vfio" and not device.tainted for device in devices):
        return "its GPUs are for virtual machines (type vfio); unbind them from vfio-pci to serve on them"
    return "every GPU in its ResourceSlices is tainted; see the device taints in the slices"


class _Device:
    """One device of a slice. Attributes of an undocumented type count as missing."""

    def __init__(self, device: Mapping[str, Any]) -> None:
        body = mapping(device, "basic") or device
        self._attributes = mapping(body, "attributes")
        self.kind = self._attribute("type", "string") or "gpu"
        self.tainted = any(taint.get("effect") in _BLOCKING for taint in mappings(body.get("taints")))
        self.cuda = _version(self._attribute("cudaDriverVersion", "version"))
        memory = mapping(body, "capacity").get("memory")
        amount = quantity(memory.get("value") if isinstance(memory, Mapping) else memory)
        product = self._attribute("productName", "string")
        version = _version(self._attribute("cudaComputeCapability", "version"))
        profile = self._attribute("profile", "string") if self.kind == "mig" else None
        # The spelling of GPU feature discovery, so that spec.hardware.products matches everywhere.
        name = re.sub(r"\s+", "-", re.sub(r"[^A-Za-z0-9_. -]", "", product).strip()) if product else None
        self.model: tuple[str | None, ComputeCapability | None, int | None, str | None] = (
            f"{name}-MIG-{profile}" if name and profile else name,
            ComputeCapability(*version) if version and version[0] > 0 else None,
            (int(amount) >> 20 or None) if amount else None,
            self._attribute("driverVersion", "version"),
        )

    def _attribute(self, name: str, kind: str) -> str | None:
        value = mapping(self._attributes, name).get(kind) or mapping(self._attributes, f"{DRIVER}/{name}").get(kind)
        return value if isinstance(value, str) and value else None


def _version(text: str | None) -> tuple[int, int] | None:
    """The major and minor numbers of a semantic version."""
    found = re.match(r"([0-9]{1,6})\.([0-9]{1,6})", text or "")
    return (int(found[1]), int(found[2])) if found else None
