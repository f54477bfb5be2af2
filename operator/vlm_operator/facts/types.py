"""Node and GPU facts as the rules read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vlm_api.plan import Sharing


class ComputeCapability(NamedTuple):
    """CUDA compute capability, such as (9, 0)."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True)
class GpuFacts:
    """The GPUs of one node. Each field is None where the cluster does not say; nothing is guessed."""

    source: str
    """gfd, dra, gke, aks, karpenter, coreweave or unknown."""
    product: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    """Of one device: the whole GPU, also when it is time-sliced; the slice under MIG; a client's part under MPS, whose
    daemon gives each an equal one (README of NVIDIA's device plugin)."""
    devices: int = 0
    """Devices that one pod can hold together: physical GPUs, or MIG slices. Never the shares of time-slicing."""
    allocatable: int = 0
    """What the node offers of the resource: with time-slicing more than there are devices."""
    sharing: Sharing = Sharing.NONE
    virtual: bool = False
    """A vGPU: a hypervisor's part of a card, or all of it, in a virtual machine."""
    driver: str | None = None
    """Driver version, such as 580.95.05."""
    cuda: tuple[int, int] | None = None
    """The newest CUDA that the driver runs, such as (13, 0)."""
    match_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of this node that hold a pod to the same hardware, best first; empty where it has none."""
    claims: bool = False
    """True: devices come through dynamic resource allocation (ResourceSlices), not as an extended resource."""
    inferred: str | None = None
    """What the facts were taken from, in one sentence, where nothing names the GPU itself."""
    ambiguous: str | None = None
    """Why the labels cannot be trusted to describe every device of the node, in one sentence."""


@dataclass(frozen=True)
class Taint:
    """A node's taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class NodeFacts:
    """One node."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False
    ready: bool = True
    cpu_architecture: str = "amd64"
    memory_mib: int | None = None
    """What pods can ask for of the host's memory."""
    ephemeral_storage_mib: int | None = None
    """What pods can ask for of the node's own disk; None where the node does not say."""
    gpu: GpuFacts | None = None
    """None: no GPU in this node."""
    unusable: str | None = None
    """Why its GPU cannot be used at all (an invalid MIG layout, a GPU given to a virtual machine), in one sentence."""


@dataclass(frozen=True)
class ClaimFacts:
    """A PersistentVolumeClaim."""

    access_modes: tuple[str, ...]
    """Of its volume where it has one, else those that it asks for; empty where nothing is said."""

    @property
    def one_pod(self) -> bool:
        """Whether no second pod can use it: the scheduler holds to this mode alone (plugin VolumeRestrictions)."""
        return "ReadWriteOncePod" in self.access_modes

    @property
    def one_node(self) -> bool:
        """Whether it is attached to no second node while a first has it (IsMultiAttachAllowed of Kubernetes'
        attach-detach controller). Of storage that is not attached, such as NFS, it says nothing."""
        return bool(self.access_modes) and not {"ReadWriteMany", "ReadOnlyMany"} & set(self.access_modes)


@dataclass(frozen=True)
class ModelFacts:
    """What is known about a model. None where nothing says so."""

    architecture: str | None = None
    """First entry of config.json's ``architectures``."""
    parameters: float | None = None
    """Number of parameters."""
    bytes_per_parameter: float = 2.0
    """2 for bf16, 1 for fp8."""
    layers: int | None = None
    attention_heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    feed_forward_size: int | None = None
    """Width of a dense feed-forward layer; None where every layer is made of experts."""
    experts: int | None = None
    """Experts that tokens are sent to, in each layer of a mixture of experts."""
    expert_size: int | None = None
    """Width of one expert."""
    quantised_block: int | None = None
    """Weights along one side of a block that shares a scale, in fp8 checkpoints that are quantised by blocks."""
    vision_hidden_size: int | None = None
    vision_heads: int | None = None
    embedding_values_per_token: int | None = None
    """Values that the vision encoder hands to the language model for one token: hidden size x (1 + deepstack levels)."""
    patch_size: int | None = None
    """Pixels along one side of a vision patch: 16 for Qwen3-VL, 14 for Qwen2.5-VL."""
    evidence: str | None = None
    """Where the numbers come from."""
