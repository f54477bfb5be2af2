"""Facts about nodes, GPUs, volumes and models, as the checks and the placement read them."""

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

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """``9.0``, as ``str`` writes it."""
        major, _, minor = text.partition(".")
        return cls(int(major), int(minor))


@dataclass(frozen=True)
class GpuFacts:
    """The GPUs of one node. A field is None if the cluster does not state it; nothing is guessed."""

    source: str
    """gfd, dra, gke, aks, karpenter, coreweave or unknown."""
    product: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    """Memory of one device: the whole GPU, even if time-sliced; the slice with MIG; one client's share with MPS, whose
    daemon splits the memory equally (README of NVIDIA's device plugin)."""
    devices: int = 0
    """Devices that one pod can use together: physical GPUs or MIG slices, never time-slicing replicas."""
    unhealthy: int = 0
    """Further devices that the device plugin has taken away for their health: a state that passes."""
    allocatable: int = 0
    """The node's allocatable amount of the resource; more than ``devices`` with time-slicing."""
    sharing: Sharing = Sharing.NONE
    time_sliced: bool = False
    """Whether several pods get the same device by turns: a whole GPU, or a MIG slice."""
    virtual: bool = False
    """Whether it is a vGPU: all or part of a physical GPU, assigned to a virtual machine."""
    driver: str | None = None
    """Driver version, such as 580.95.05."""
    cuda: tuple[int, int] | None = None
    """The newest CUDA version that the driver supports, such as (13, 0)."""
    match_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of this node that select the same hardware, best first; empty if there are none."""
    claims: bool = False
    """True if devices are allocated by dynamic resource allocation (ResourceSlices), not as an extended resource."""
    inferred: str | None = None
    """The source of the facts, in one sentence, if no label names the GPU."""
    ambiguous: str | None = None
    """Why the labels may not describe every device of the node, in one sentence."""

    @property
    def present(self) -> int:
        """The devices that one pod can use together when all are healthy."""
        return self.devices + self.unhealthy


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
    """Host memory that pods can request."""
    ephemeral_storage_mib: int | None = None
    """Ephemeral storage that pods can request; None if the node does not state it."""
    gpu: GpuFacts | None = None
    """None if the node has no GPU."""
    unusable: str | None = None
    """Why its GPU cannot be used at all (an invalid MIG layout, a GPU for virtual machines), in one sentence."""


@dataclass(frozen=True)
class ClaimFacts:
    """A PersistentVolumeClaim."""

    access_modes: tuple[str, ...]
    """The bound volume's modes, else the requested ones; empty if none are stated."""

    @property
    def one_pod(self) -> bool:
        """Whether only one pod can use it: the scheduler enforces this mode only (plugin VolumeRestrictions)."""
        return "ReadWriteOncePod" in self.access_modes

    @property
    def one_node(self) -> bool:
        """Whether it can be attached to one node only at a time (IsMultiAttachAllowed of Kubernetes' attach-detach
        controller). This does not apply to storage that is not attached, such as NFS."""
        return bool(self.access_modes) and not {"ReadWriteMany", "ReadOnlyMany"} & set(self.access_modes)


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model. None if unknown."""

    architecture: str | None = None
    """First entry of config.json's ``architectures``."""
    parameters: float | None = None
    """Number of parameters."""
    bytes_per_parameter: float = 2.0
    """2 for bf16, 1 for fp8."""
    layers: int | None = None
    """Layers of the language model, if each has a KV cache."""
    kv_layers: int | None = None
    """Layers with a KV cache, if the others keep a state for each running request."""
    sliding_layers: int | None = None
    """Those of the layers whose KV cache the engine keeps in a smaller pool of its own, since they look back over a window."""
    latent_size: int | None = None
    """Values per token and layer of a compressed KV cache (latent attention), which is not split over tensor ranks."""
    state_values: int | None = None
    """Values of one request's recurrent states, in all layers together."""
    state_value_bytes: int | None = None
    """Size of one of them."""
    convolution_values: int | None = None
    """Values of one request's convolution states, in all layers together; 2 bytes each."""
    attention_heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    feed_forward_size: int | None = None
    """Width of a dense feed-forward layer; None for mixtures of experts."""
    experts: int | None = None
    """Routed experts in each layer of a mixture of experts."""
    expert_size: int | None = None
    """Width of one expert."""
    quantization: str | None = None
    """The method by which the files' weights are quantized, by the engine's name (fp8, awq, compressed-tensors)."""
    latent: bool | None = None
    """Whether its attention is latent (MLA)."""
    quantised_group: int | None = None
    """Weights in a row that share a scale, in checkpoints that are quantised by groups (AWQ, GPTQ, compressed-tensors)."""
    quantised_block: int | None = None
    """Weights along one side of a block that shares a scale, in block-quantised fp8 checkpoints."""
    vision_hidden_size: int | None = None
    vision_heads: int | None = None
    embedding_values_per_token: int | None = None
    """Values that the vision encoder passes to the language model for one token: hidden size x (1 + deepstack levels)."""
    patch_size: int | None = None
    """Pixels along one side of a vision patch: 16 for Qwen3-VL, 14 for Qwen2.5-VL."""
    image_processor: Mapping[str, int] | None = None
    """Whole numbers of the image processor's file, by key ("size.longest_edge")."""
    context_length: int | None = None
    """Tokens of one request at most, prompt and answer together."""
    evidence: str | None = None
    """Where the numbers come from."""


@dataclass(frozen=True)
class Cluster:
    """The state of the cluster that a plan may use."""

    nodes: tuple[NodeFacts, ...] = ()
    in_use: Mapping[str, int] = field(default_factory=dict)
    """Devices that other workloads' pods request, by node. Empty if the plan does not depend on them."""
    has_leader_worker_sets: bool = True
    network_policies: bool = True
    """Whether the operator creates NetworkPolicies."""
    claims: Mapping[str, ClaimFacts] = field(default_factory=dict)
    """The readable PersistentVolumeClaims in the service's namespace, by name."""
    missing_claims: frozenset[str] = frozenset()
    """Claims that do not exist, if a change of pods that run would mount them."""
