"""Labels of NVIDIA GPU feature discovery (GFD) -> what they say about a node's GPUs.

GFD writes one set of labels per node, even where the node has GPUs of two models; a label that Kubernetes would refuse
(too long, brackets in the name) is missing while all the others are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from vlm_api.plan import Sharing
from vlm_operator.facts.labels import integer, text, tokens
from vlm_operator.facts.products import product
from vlm_operator.facts.types import ComputeCapability, GpuFacts

GPU: Final = "nvidia.com/gpu"
MIG_RESOURCE: Final = "nvidia.com/mig-"
_MAJOR: Final = "nvidia.com/gpu.compute.major"
_MINOR: Final = "nvidia.com/gpu.compute.minor"
_MEMORY: Final = "nvidia.com/gpu.memory"
_PRODUCT: Final = "nvidia.com/gpu.product"
_VIRTUAL: Final = "nvidia.com/vgpu.present"
_CUDA_VERSION: Final = ("nvidia.com/cuda.runtime-version", "nvidia.com/cuda.runtime")
_DRIVER_VERSION: Final = ("nvidia.com/cuda.driver-version", "nvidia.com/cuda.driver")
# While the MIG manager works, the labels are those of the layout before.
_MIG_CHANGING: Final = ("pending", "rebooting", "failed")


class Offer(NamedTuple):
    """What a node offers of one extended resource."""

    resource: str
    allocatable: int
    capacity: int
    """Healthy devices and those that the device plugin has taken out."""


class Reading(NamedTuple):
    """What one source says about a node's GPUs."""

    gpu: GpuFacts
    unusable: str | None = None


def discovered(labels: Mapping[str, Any], offer: Offer) -> Reading | None:
    """What GFD's labels say of the devices behind ``offer.resource``; None where GFD wrote none."""
    name, memory_mib, count = text(labels, _PRODUCT), integer(labels, _MEMORY), integer(labels, "nvidia.com/gpu.count")
    if name is None and memory_mib is None and count is None and text(labels, _MAJOR) is None:
        return None
    capability, virtual = _capability(labels, name)
    sharing, replicas = _sharing(labels, name)
    # Drivers of vGPU software before 2020 named cards GRID T4-16C and the like.
    is_virtual = (text(labels, _VIRTUAL) or "").lower() == "true" or "grid" in tokens(name or "")
    prefix = GPU
    if offer.resource.startswith(MIG_RESOURCE):  # MIG "mixed": each profile has a resource and labels of its own
        prefix = offer.resource
        name = text(labels, f"{prefix}.product")
        memory_mib, count = integer(labels, f"{prefix}.memory"), integer(labels, f"{prefix}.count")
        sharing, replicas = Sharing.MIG, max(1, integer(labels, f"{prefix}.replicas") or 1)
    memory_mib = memory_mib if memory_mib and memory_mib > 0 else None
    whole = sharing is not Sharing.MIG and not is_virtual
    untrue, memory_mib = _contradiction(name, capability, memory_mib) if whole else (None, memory_mib)
    gpu = GpuFacts(
        source="gfd",
        product=name,
        compute_capability=capability,
        memory_mib=(memory_mib // replicas or None) if memory_mib and sharing is Sharing.MPS else memory_mib,
        devices=_devices(count, replicas, offer),
        allocatable=offer.allocatable,
        sharing=sharing,
        virtual=is_virtual,
        driver=driver_version(labels),
        cuda=_cuda_version(labels),
        match_labels=_match_labels(labels, prefix, capability),
        ambiguous=_ambiguous(labels, count, replicas, offer) or virtual or untrue,
    )
    return Reading(gpu, _unusable(labels, name, virtual, offer))


def _capability(labels: Mapping[str, Any], name: str | None) -> tuple[ComputeCapability | None, str | None]:
    """The compute capability, from its own labels or else from the product's name; and a sentence where the GPU is
    bound to vfio-pci, for which GFD writes -1."""
    major, minor = integer(labels, _MAJOR), integer(labels, _MINOR)
    if major is not None and major < 0:
        return None, f"label {_MAJOR} is {major}: a GPU of this node is bound to vfio-pci, for virtual machines"
    if major is not None and minor is not None and 0 < major < 100 and 0 <= minor < 100:
        return ComputeCapability(major, minor), None
    known = product(name)
    return (known.compute_capability if known else None), None


def _sharing(labels: Mapping[str, Any], name: str | None) -> tuple[Sharing, int]:
    """How the devices of ``nvidia.com/gpu`` are shared, and how many shares a device has."""
    words = tokens(name or "")
    # GFD labels slices only under the strategy "single"; the product's name may be too long for a label.
    sliced = (
        text(labels, "nvidia.com/mig.strategy") == "single" and text(labels, "nvidia.com/gpu.slices.gi") is not None
    )
    replicas = max(1, integer(labels, "nvidia.com/gpu.replicas") or 1)
    if "mig" in words or sliced:
        return Sharing.MIG, replicas
    strategy = (text(labels, "nvidia.com/gpu.sharing-strategy") or "none").lower()
    if strategy == "mps":
        return Sharing.MPS, replicas
    if strategy == "time-slicing" or "shared" in words or replicas > 1:
        return Sharing.TIME_SLICING, replicas
    return Sharing.NONE, replicas


def _devices(count: int | None, replicas: int, offer: Offer) -> int:
    """Physical devices (or MIG slices) that a pod can hold: never more than labelled, never more than offered."""
    offered = -(-offer.allocatable // replicas)
    return offered if count is None or count < 0 else min(count, offered)


def _ambiguous(labels: Mapping[str, Any], count: int | None, replicas: int, offer: Offer) -> str | None:
    state = text(labels, "nvidia.com/mig.config.state")
    if state in _MIG_CHANGING:
        return f"label nvidia.com/mig.config.state is {state}: the labels may describe the MIG layout before it"
    labelled = None if count is None else count * replicas
    present = max(offer.capacity, offer.allocatable)
    if labelled and present > labelled:
        return (
            f"the node has {present} of {offer.resource}, but its labels describe {labelled}: "
            "it holds more than one GPU model, and the labels describe one of them"
        )
    return None


def _contradiction(
    name: str | None, capability: ComputeCapability | None, memory_mib: int | None
) -> tuple[str | None, int | None]:
    """A sentence where labels say of a whole card what no card of its name is, and the memory as far as it is believed."""
    known = product(name)
    if known is None:
        return None, memory_mib
    if capability is not None and capability != known.compute_capability:
        return (
            f"labels {_MAJOR} and minor say {capability}, and cards named {name} have {known.compute_capability}",
            memory_mib,
        )
    sizes = known.memory_mib
    if memory_mib is not None and sizes and not min(sizes) / 2 < memory_mib < max(sizes) * 2:
        listed = " or ".join(f"{size:,}" for size in sizes)
        return f"label {_MEMORY} is {memory_mib} and counts MiB, but cards named {name} have {listed} MiB", None
    return None, memory_mib


def _unusable(labels: Mapping[str, Any], name: str | None, virtual: str | None, offer: Offer) -> str | None:
    if {"mig", "invalid"} <= tokens(name or ""):
        return f"label {_PRODUCT} is {name}: its MIG layout is not valid; give each GPU the same profile, or none"
    if offer.allocatable > 0:
        return None
    if virtual:
        return f"{virtual}; unbind it from vfio-pci to serve with it"
    return None


def driver_version(labels: Mapping[str, Any]) -> str | None:
    """The driver's version, such as ``580.95.05``, in the new and the old spelling of its labels."""
    for prefix in _DRIVER_VERSION:
        if full := text(labels, f"{prefix}.full"):
            return full
        parts = [text(labels, f"{prefix}.{part}") for part in ("major", "minor")]
        if all(parts):
            parts.append(text(labels, f"{prefix}.revision", f"{prefix}.rev"))
            return ".".join(part for part in parts if part)
    return None


def _cuda_version(labels: Mapping[str, Any]) -> tuple[int, int] | None:
    """The newest CUDA that the driver runs. The label is called "runtime", but no toolkit is meant."""
    for prefix in _CUDA_VERSION:
        major, minor = integer(labels, f"{prefix}.major"), integer(labels, f"{prefix}.minor")
        full = (text(labels, f"{prefix}.full") or "").split(".")
        if full[0].isdecimal() and len(full) > 1 and full[1].isdecimal():
            return int(full[0][:6]), int(full[1][:6])
        if major is not None and major > 0:
            return major, max(0, minor or 0)
    return None


def _match_labels(labels: Mapping[str, Any], prefix: str, capability: ComputeCapability | None) -> dict[str, str]:
    """The labels that hold a pod to this hardware: the product alone where it is labelled, since memory differs a
    little between drivers; else capability and memory. A virtual GPU may bear the card's own name."""
    virtual = {_VIRTUAL: labels[_VIRTUAL]} if text(labels, _VIRTUAL) not in (None, "false") else {}
    if name := text(labels, f"{prefix}.product"):
        return {f"{prefix}.product": name, **virtual}
    keys = (_MAJOR, _MINOR, f"{prefix}.memory", *virtual) if capability else ()
    return {key: value for key in keys if (value := text(labels, key)) is not None}
