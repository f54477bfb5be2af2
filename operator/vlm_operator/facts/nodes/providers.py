"""Labels that cloud providers set, for clusters without GPU feature discovery.

They name the GPU and little else: compute capability and memory come from the table of products. Empty values count as
missing, since some providers set these labels on every node.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from vlm_api.plan import Sharing
from vlm_operator.facts.nodes.discovery import Offer
from vlm_operator.facts.nodes.instances import instance_family
from vlm_operator.facts.nodes.labels import integer, text
from vlm_operator.facts.nodes.products import Product, product
from vlm_operator.facts.types import GpuFacts

_GKE: Final = "cloud.google.com/gke-accelerator"
_GKE_PARTITION: Final = "cloud.google.com/gke-gpu-partition-size"
_GKE_SHARING: Final = "cloud.google.com/gke-gpu-sharing-strategy"
_GKE_CLIENTS: Final = "cloud.google.com/gke-max-shared-clients-per-gpu"
_COREWEAVE: Final = ("gpu.nvidia.com/class", "gpu.nvidia.com/model")
# Karpenter and EKS Auto Mode, which is Karpenter with another prefix.
_AWS: Final = ("karpenter.k8s.aws/instance-gpu", "eks.amazonaws.com/instance-gpu")
_AKS: Final = "kubernetes.azure.com/accelerator"
_AKS_NAP: Final = "karpenter.azure.com/sku-gpu"
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"


def provided(labels: Mapping[str, Any], offer: Offer) -> GpuFacts | None:
    """The facts about the node's GPUs in the cloud provider's labels; None if they do not name a GPU.

    CoreWeave comes before GKE because it also sets GKE's label, with its own names. The instance type comes last, since
    it does not state how the GPUs are shared.
    """
    return (
        _coreweave(labels, offer)
        or _gke(labels, offer)
        or _aws(labels, offer)
        or _azure(labels, offer)
        or _by_instance_type(labels, offer)
    )


def _coreweave(labels: Mapping[str, Any], offer: Offer) -> GpuFacts | None:
    key = next((key for key in _COREWEAVE if text(labels, key)), None)
    if key is None:
        return None
    # In thousands of MiB, rounded down: 81 for 81,559 MiB.
    vram = integer(labels, "gpu.nvidia.com/vram")
    known = product(text(labels, key))
    memory_mib = (known.memory_near(vram * 1000 + 999) if known else None) or vram * 1000 if vram and vram > 0 else None
    return _facts("coreweave", labels, offer, (key,), known, memory_mib, integer(labels, "gpu.nvidia.com/count"))


def _gke(labels: Mapping[str, Any], offer: Offer) -> GpuFacts | None:
    if text(labels, _GKE) is None:
        return None
    known = product(text(labels, _GKE))
    count = integer(labels, "cloud.google.com/gke-accelerator-count")
    keys = (_GKE, _GKE_PARTITION, _GKE_SHARING)
    clients = max(1, integer(labels, _GKE_CLIENTS) or 1)
    strategy = (text(labels, _GKE_SHARING) or "").lower()
    if text(
        labels, _GKE_PARTITION
    ):  # a slice's usable memory is less than its profile's name says, so it stays unknown
        return _facts("gke", labels, offer, keys, known, None, offer.allocatable // clients, Sharing.MIG)
    memory_mib = known.only_memory_mib if known else None
    sharing = {"mps": Sharing.MPS, "time-sharing": Sharing.TIME_SLICING}.get(strategy, Sharing.NONE)
    if sharing is Sharing.MPS and memory_mib is not None:
        memory_mib = memory_mib // clients or None
    if sharing is not Sharing.NONE and not count:
        count = -(-offer.allocatable // clients)
    return _facts("gke", labels, offer, keys, known, memory_mib, count, sharing)


def _aws(labels: Mapping[str, Any], offer: Offer) -> GpuFacts | None:
    for prefix in _AWS:
        maker = (text(labels, f"{prefix}-manufacturer") or "nvidia").lower()
        name = text(labels, f"{prefix}-name")
        if name is None or maker != "nvidia":
            continue
        known, nominal_mib = product(name), integer(labels, f"{prefix}-memory")
        memory_mib = known.only_memory_mib if known else None
        if nominal_mib and nominal_mib > 0:
            memory_mib = (known.memory_near(nominal_mib) if known else None) or nominal_mib
        keys, count = (f"{prefix}-name", f"{prefix}-memory"), integer(labels, f"{prefix}-count")
        # The count is 0 for instances with a part of a GPU.
        return replace(_facts("karpenter", labels, offer, keys, known, memory_mib, count), virtual=count == 0)
    return None


def _azure(labels: Mapping[str, Any], offer: Offer) -> GpuFacts | None:
    """Azure uses the GPU's name for fractions of it as well, so the memory stays unknown."""
    if name := text(labels, f"{_AKS_NAP}-name"):
        return _facts(
            "aks", labels, offer, (f"{_AKS_NAP}-name",), product(name), None, integer(labels, f"{_AKS_NAP}-count")
        )
    if (text(labels, _AKS) or "").lower() != "nvidia":
        return None
    # The label names the vendor only; the VM size names the model: Standard_ND96isr_H100_v5.
    known = product(text(labels, _INSTANCE_TYPE))
    return _facts("aks", labels, offer, (_INSTANCE_TYPE, _AKS), known, None, None)


def _by_instance_type(labels: Mapping[str, Any], offer: Offer) -> GpuFacts | None:
    """For EKS without Karpenter and Azure VMs outside AKS: the provider that defines the type is recorded as the source."""
    instance_type = text(labels, _INSTANCE_TYPE)
    if instance_type is None:
        return None
    inferred = f"label {_INSTANCE_TYPE} is {instance_type}, and no label names the GPU"
    if family := instance_family(instance_type):
        known, nominal_mib = product(family.product), family.memory_mib
        memory_mib = None
        if nominal_mib is not None:
            memory_mib = (known.memory_near(nominal_mib) if known else None) or nominal_mib
        facts = _facts("karpenter", labels, offer, (_INSTANCE_TYPE,), known, memory_mib, None)
        return replace(facts, product=family.product, virtual=family.part, inferred=inferred)
    # VM sizes that start with N have GPUs; some have a part of a GPU.
    known = product(instance_type) if instance_type.startswith("Standard_N") else None
    if known is None:
        return None
    return replace(_facts("aks", labels, offer, (_INSTANCE_TYPE,), known, None, None), inferred=inferred)


def _facts(
    source: str,
    labels: Mapping[str, Any],
    offer: Offer,
    keys: tuple[str, ...],
    known: Product | None,
    memory_mib: int | None,
    count: int | None,
    sharing: Sharing = Sharing.NONE,
) -> GpuFacts:
    devices, present = (
        amount if not count or count < 0 else min(count, amount) for amount in (offer.allocatable, offer.capacity)
    )
    return GpuFacts(
        source=source,
        product=text(labels, keys[0]),
        compute_capability=known.compute_capability if known else None,
        memory_mib=memory_mib,
        devices=devices,
        unhealthy=max(present - devices, 0) if sharing is Sharing.NONE else 0,
        allocatable=offer.allocatable,
        sharing=sharing,
        time_sliced=sharing is Sharing.TIME_SLICING,
        match_labels={key: value for key in keys if (value := text(labels, key)) is not None},
    )
