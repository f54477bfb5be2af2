"""A Node and its ResourceSlices -> NodeFacts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from vlm_api.plan import Sharing
from vlm_operator.facts.nodes.discovery import GPU, MIG_RESOURCE, RENAMED, Offer, Reading, discovered
from vlm_operator.facts.nodes.labels import count, mapping, mappings, quantity, text
from vlm_operator.facts.nodes.providers import provided
from vlm_operator.facts.nodes.slices import claimable
from vlm_operator.facts.types import GpuFacts, NodeFacts, Taint

# Extended resources of other vendors' devices.
_OTHER_MAKERS: Final = (
    "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi", "huawei.com/Ascend910",
    "aws.amazon.com/neuron", "google.com/tpu",
)  # fmt: skip
# The workloads that the GPU operator prepares a node for: container, vm-passthrough or vm-vgpu.
_WORKLOAD: Final = "nvidia.com/gpu.workload.config"
# Node feature discovery's labels for a PCI device of NVIDIA, without and with the PCI class before the vendor.
_PCI_NVIDIA: Final = ("pci-10de.present", "pci-0300_10de.present", "pci-0302_10de.present")


def node_facts(
    node: Mapping[str, Any], slices: Sequence[Mapping[str, Any]] = (), resource_name: str = GPU
) -> NodeFacts:
    """The facts about one node and its GPUs of ``resource_name``.

    ``node`` is a core/v1 Node and ``slices`` are ResourceSlices (those of other nodes are ignored), both in JSON form.
    Compute capability comes from GPU feature discovery's labels, else from the product name in them, else from the cloud
    provider's labels, else from the slices, else it stays unknown. Memory comes from a label or a slice; if only a
    provider's label names the product, memory is the size of GPUs with this name in ``products.yaml``.
    Never raises an error: invalid values count as missing.
    """
    labels = {str(key): str(value) for key, value in mapping(node, "metadata", "labels").items() if value is not None}
    name = name_of(node)
    reading = _gpu(node, labels, slices, name, resource_name)
    allocatable = mapping(node, "status", "allocatable")
    return NodeFacts(
        name=name,
        labels=labels,
        taints=_taints(node),
        cordoned=mapping(node, "spec").get("unschedulable") is True,
        ready=_ready(node),
        cpu_architecture=text(labels, "kubernetes.io/arch")
        or text(mapping(node, "status", "nodeInfo"), "architecture")
        or "amd64",
        memory_mib=_mib(allocatable, "memory"),
        ephemeral_storage_mib=_mib(allocatable, "ephemeral-storage"),
        gpu=reading.gpu if reading else None,
        unusable=reading.unusable if reading else None,
    )


def _mib(quantities: Mapping[str, Any], resource: str) -> int | None:
    amount = quantity(quantities.get(resource))
    return int(amount) >> 20 if amount else None


def name_of(node: Mapping[str, Any]) -> str:
    """A node's name; empty if it has none."""
    return str(mapping(node, "metadata").get("name") or "")


def _gpu(
    node: Mapping[str, Any], labels: Mapping[str, str], slices: Sequence[Mapping[str, Any]], name: str, resource: str
) -> Reading | None:
    allocatable, capacity = mapping(node, "status", "allocatable"), mapping(node, "status", "capacity")
    offer = Offer(resource, count(allocatable, resource), count(capacity, resource))
    labelled = _labelled(labels, offer)
    if not offer.allocatable and (claim := claimable(slices, name)):
        match = labelled.gpu.match_labels if labelled else {}
        return claim._replace(gpu=replace(claim.gpu, match_labels=match))
    if labelled is None:
        if offer.allocatable:
            shared = resource.endswith(RENAMED)
            sharing = Sharing.TIME_SLICING if shared else Sharing.NONE
            gpu = GpuFacts(source="unknown", devices=offer.allocatable, allocatable=offer.allocatable)
            return Reading(replace(gpu, sharing=sharing, time_sliced=shared))
        present = any(labels.get(f"feature.node.kubernetes.io/{key}") == "true" for key in _PCI_NVIDIA)
        if present or _for_machines(labels):
            return Reading(GpuFacts(source="unknown"), _not_offered(offer, allocatable, labels))
        if other := next((name for name in _OTHER_MAKERS if count(allocatable, name) > 0), None):
            return Reading(
                GpuFacts(source="unknown"), f"it offers {other}, but plans support NVIDIA GPUs and CPUs only"
            )
        return None
    if offer.allocatable or labelled.unusable:
        return labelled
    return labelled._replace(unusable=_not_offered(offer, allocatable, labels))


def _labelled(labels: Mapping[str, str], offer: Offer) -> Reading | None:
    """The facts in GPU feature discovery's labels, or the cloud provider's if those do not name the GPU."""
    found, cloud = discovered(labels, offer), provided(labels, offer)
    if found is None:
        return Reading(cloud) if cloud else None
    gpu = found.gpu
    if gpu.compute_capability is None and gpu.product is None and gpu.ambiguous is None and cloud:
        gpu = replace(gpu, product=cloud.product, compute_capability=cloud.compute_capability)
        gpu = replace(gpu, match_labels=gpu.match_labels or cloud.match_labels)
    return found._replace(gpu=gpu)


def _for_machines(labels: Mapping[str, str]) -> str | None:
    """The workload label's value if the GPU operator prepares the node for virtual machines, else None."""
    config = text(labels, _WORKLOAD)
    return config if config is not None and config.startswith("vm-") else None


def _not_offered(offer: Offer, allocatable: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Why no pod can request the GPUs in the labels, and what to do."""
    if config := _for_machines(labels):
        return f"its GPUs are for virtual machines (label {_WORKLOAD} is {config}): set the label to container to serve on it"
    others = sorted(
        key for key in allocatable if key.startswith((f"{GPU}.", MIG_RESOURCE)) and count(allocatable, key) > 0
    )
    if others:
        return f"it offers no {offer.resource} but {', '.join(others)}: set spec.hardware.resourceName to use it"
    if offer.capacity:
        return f"none of its {offer.capacity} {offer.resource} is healthy: see the device plugin's log on this node"
    return f"it has a GPU but offers no {offer.resource}: install the device plugin, or wait until it has started"


def _taints(node: Mapping[str, Any]) -> tuple[Taint, ...]:
    taints = mappings(mapping(node, "spec").get("taints"))
    return tuple(Taint(*(str(taint.get(field) or "") for field in ("key", "value", "effect"))) for taint in taints)


def _ready(node: Mapping[str, Any]) -> bool:
    """A node without a Ready condition counts as ready: hand-written files often leave out the status."""
    conditions = mappings(mapping(node, "status").get("conditions"))
    return all(condition.get("status") == "True" for condition in conditions if condition.get("type") == "Ready")
