"""Labels of NVIDIA GPU feature discovery (GFD) -> facts about a node's GPUs.

GFD writes one set of labels per node, even if the node has two GPU models. A label with a value that Kubernetes rejects
(too long, brackets in the name) is missing; the others are present.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from vlm_api.plan import Sharing
from vlm_operator.facts.nodes.labels import integer, text, tokens
from vlm_operator.facts.nodes.products import product
from vlm_operator.facts.types import ComputeCapability, GpuFacts

GPU: Final = "nvidia.com/gpu"
MIG_RESOURCE: Final = "nvidia.com/mig-"
# The device plugin's ending for shared devices (renameByDefault). Their labels keep the name without it.
RENAMED: Final = ".shared"
_MAJOR: Final = "nvidia.com/gpu.compute.major"
_MINOR: Final = "nvidia.com/gpu.compute.minor"
_MEMORY: Final = "nvidia.com/gpu.memory"
_PRODUCT: Final = "nvidia.com/gpu.product"
_VIRTUAL: Final = "nvidia.com/vgpu.present"
_CUDA_VERSION: Final = ("nvidia.com/cuda.runtime-version", "nvidia.com/cuda.runtime")
_DRIVER_VERSION: Final = ("nvidia.com/cuda.driver-version", "nvidia.com/cuda.driver")
# While the MIG manager works, the labels still describe the previous layout.
_MIG_CHANGING: Final = ("pending", "rebooting", "failed")


class Offer(NamedTuple):
    """The amounts of one extended resource on a node."""

    resource: str
    allocatable: int
    capacity: int
    """Healthy and unhealthy devices."""


class Reading(NamedTuple):
    """The facts about a node's GPUs from one source."""

    gpu: GpuFacts
    unusable: str | None = None


def discovered(labels: Mapping[str, Any], offer: Offer) -> Reading | None:
    """The facts about the devices of ``offer.resource`` in GFD's labels; None if GFD wrote no labels."""
    name, memory_mib, count = text(labels, _PRODUCT), integer(labels, _MEMORY), integer(labels, "nvidia.com/gpu.count")
    if name is None and memory_mib is None and count is None and text(labels, _MAJOR) is None:
        return None
    capability, virtual = _capability(labels, name)
    sharing, replicas = _sharing(labels, name)
    # Before 2020, vGPU drivers used names such as GRID T4-16C.
    is_virtual = (text(labels, _VIRTUAL) or "").lower() == "true" or "grid" in tokens(name or "")
    prefix = GPU
    if offer.resource.startswith(MIG_RESOURCE):  # MIG "mixed": each profile has its own resource and labels
        prefix = offer.resource.removesuffix(RENAMED)
        name = text(labels, f"{prefix}.product")
        memory_mib, count = integer(labels, f"{prefix}.memory"), integer(labels, f"{prefix}.count")
        sharing, replicas = Sharing.MIG, max(1, integer(labels, f"{prefix}.replicas") or 1)
    time_sliced = _time_sliced(labels, prefix, name, sharing, replicas) or offer.resource.endswith(RENAMED)
    if time_sliced and sharing is Sharing.NONE:
        sharing = Sharing.TIME_SLICING
    memory_mib = memory_mib if memory_mib and memory_mib > 0 else None
    whole = sharing is not Sharing.MIG and not is_virtual
    untrue, memory_mib = _contradiction(name, capability, memory_mib) if whole else (None, memory_mib)
    gpu = GpuFacts(
        source="gfd",
        product=name,
        compute_capability=capability,
        memory_mib=(memory_mib // replicas or None) if memory_mib and sharing is Sharing.MPS else memory_mib,
        devices=(devices := _devices(count, replicas, offer.allocatable)),
        unhealthy=max(_devices(count, replicas, offer.capacity) - devices, 0),
        allocatable=offer.allocatable,
        sharing=sharing,
        time_sliced=time_sliced and sharing is not Sharing.MPS,
        virtual=is_virtual,
        driver=driver_version(labels),
        cuda=_cuda_version(labels),
        match_labels=_match_labels(labels, prefix, capability),
        ambiguous=_ambiguous(labels, count, replicas, offer) or virtual or untrue,
    )
    return Reading(gpu, _unusable(labels, name, virtual, offer))


def _capability(labels: Mapping[str, Any], name: str | None) -> tuple[ComputeCapability | None, str | None]:
    """The compute capability from its labels, else from the product name; and a sentence if a GPU is bound to vfio-pci,
    for which GFD writes -1."""
    major, minor = integer(labels, _MAJOR), integer(labels, _MINOR)
    if major is not None and major < 0:
        return None, f"label {_MAJOR} is {major}: a GPU of this node is bound to vfio-pci, for virtual machines"
    if major is not None and minor is not None and 0 < major < 100 and 0 <= minor < 100:
        return ComputeCapability(major, minor), None
    known = product(name)
    return (known.compute_capability if known else None), None


def _sharing(labels: Mapping[str, Any], name: str | None) -> tuple[Sharing, int]:
    """The sharing mode of ``nvidia.com/gpu``, and the replicas per device."""
    words = tokens(name or "")
    # GFD labels slices with the strategy "single" only; the product name may be too long for a label.
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


def _time_sliced(labels: Mapping[str, Any], prefix: str, name: str | None, sharing: Sharing, replicas: int) -> bool:
    """Whether pods share each of these devices by turns; MIG slices may be shared as whole GPUs are."""
    strategy = (text(labels, f"{prefix}.sharing-strategy") or "none").lower()
    sliced = strategy == "time-slicing" or "shared" in tokens(name or "") or replicas > 1
    return sharing is Sharing.TIME_SLICING or (sharing is Sharing.MIG and sliced)


def _devices(count: int | None, replicas: int, amount: int) -> int:
    """Physical devices (or MIG slices) of an amount of the resource that a pod can use: at most the labelled number."""
    offered = -(-amount // replicas)
    return offered if count is None or count < 0 else min(count, offered)


def _ambiguous(labels: Mapping[str, Any], count: int | None, replicas: int, offer: Offer) -> str | None:
    state = text(labels, "nvidia.com/mig.config.state")
    if state in _MIG_CHANGING:
        return f"label nvidia.com/mig.config.state is {state}: the labels may describe the previous MIG layout"
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
    """A sentence if labels contradict the known specs of a whole GPU, and the memory (None if it is implausible)."""
    known = product(name)
    if known is None:
        return None, memory_mib
    if capability is not None and capability != known.compute_capability:
        return (
            f"labels {_MAJOR} and minor say {capability}, but GPUs named {name} have {known.compute_capability}",
            memory_mib,
        )
    sizes = known.memory_mib
    if memory_mib is not None and sizes and not min(sizes) / 2 < memory_mib < max(sizes) * 2:
        listed = " or ".join(f"{size:,}" for size in sizes)
        return f"label {_MEMORY} is {memory_mib} and counts MiB, but GPUs named {name} have {listed} MiB", None
    return None, memory_mib


def _unusable(labels: Mapping[str, Any], name: str | None, virtual: str | None, offer: Offer) -> str | None:
    if {"mig", "invalid"} <= tokens(name or ""):
        return f"label {_PRODUCT} is {name}: its MIG layout is not valid; set the same profile on each GPU, or none"
    if offer.allocatable > 0:
        return None
    if virtual:
        return f"{virtual}; unbind it from vfio-pci to serve on it"
    return None


def driver_version(labels: Mapping[str, Any]) -> str | None:
    """The driver's version, such as ``580.95.05``, from the current or the deprecated labels."""
    for prefix in _DRIVER_VERSION:
        if full := text(labels, f"{prefix}.full"):
            return full
        parts = [text(labels, f"{prefix}.{part}") for part in ("major", "minor")]
        if all(parts):
            parts.append(text(labels, f"{prefix}.revision", f"{prefix}.rev"))
            return ".".join(part for part in parts if part)
    return None


def _cuda_version(labels: Mapping[str, Any]) -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports. The label says "runtime", but does not mean the toolkit."""
    for prefix in _CUDA_VERSION:
        major, minor = integer(labels, f"{prefix}.major"), integer(labels, f"{prefix}.minor")
        full = (text(labels, f"{prefix}.full") or "").split(".")
        if full[0].isdecimal() and len(full) > 1 and full[1].isdecimal():
            return int(full[0][:6]), int(full[1][:6])
        if major is not None and major > 0:
            return major, max(0, minor or 0)
    return None


def _match_labels(labels: Mapping[str, Any], prefix: str, capability: ComputeCapability | None) -> dict[str, str]:
    """The labels that select this hardware: the product alone if it is labelled, since memory differs slightly between
    drivers; else capability and memory. A virtual GPU may have the physical GPU's name."""
    virtual = {_VIRTUAL: labels[_VIRTUAL]} if text(labels, _VIRTUAL) not in (None, "false") else {}
    if name := text(labels, f"{prefix}.product"):
        return {f"{prefix}.product": name, **virtual}
    keys = (_MAJOR, _MINOR, f"{prefix}.memory", *virtual) if capability else ()
    return {key: value for key in keys if (value := text(labels, key)) is not None}
