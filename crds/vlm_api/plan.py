"""The ServingPlan: what the operator decided, for which hardware, why, and what the pods are made from."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import Field

from vlm_api.base import ApiModel, Json

Text = Annotated[str, Field(max_length=4096)]
Short = Annotated[str, Field(max_length=512)]


class Source(str, Enum):
    """Who decided a setting, in order of precedence."""

    USER = "user"
    WORKLOAD = "workload"
    PROFILE = "profile"
    HARDWARE = "hardware"
    ENGINE = "engine"


class Severity(str, Enum):
    """How bad a finding is. An Error means that there is no plan to run."""

    ERROR = "Error"
    WARNING = "Warning"
    INFO = "Info"


class Sharing(str, Enum):
    """How a physical GPU is split between pods."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"


class ServiceRef(ApiModel):
    """The service that a plan was made for."""

    name: Short
    """The VLMService's name."""
    namespace: Short
    """Its namespace."""


class PlanEngine(ApiModel):
    """The engine's command line and environment."""

    name: Literal["sglang"] = "sglang"
    """The engine."""
    version: Short | None = None
    """Its version; null when the image does not say."""
    image: Short
    """The image of the engine's container."""
    args: Annotated[list[Text], Field(max_length=512)] = []
    """Arguments of ``python3 -m sglang.launch_server``, in order. No secret is among them."""
    env: dict[str, Text] = {}
    """Environment variables with literal values. References to Secrets stay in the pod alone."""


class PassedOver(ApiModel):
    """A node that was not chosen."""

    node: Short
    """The node's name."""
    reason: Text
    """Why it does not count."""


class PlanHardware(ApiModel):
    """The hardware that the plan was made for."""

    device: Short
    """``cuda`` or ``cpu``."""
    compute_capability: Short | None = None
    """Such as ``9.0``; null when unknown."""
    architecture: Short | None = None
    """Such as ``hopper``, from the compute capability."""
    product: Short | None = None
    """The product as the cluster names it."""
    memory_mib: int | None = None
    """Memory of one device in MiB; null when unknown."""
    driver: Short | None = None
    """Driver version, such as ``580.95.05``; null when unknown, or where the nodes differ."""
    devices_per_node: int | None = None
    """Devices in one node: physical GPUs, or MIG slices."""
    sharing: Sharing = Sharing.NONE
    """How devices are shared."""
    source: Short = "unknown"
    """Who said so: gfd, dra, gke, aks, karpenter, coreweave, nvml, spec or unknown."""
    resource_name: Short | None = None
    """The extended resource that pods ask for; null where devices come through claims, or on the CPU."""
    claims: bool = False
    """True: devices come through dynamic resource allocation."""
    match_labels: dict[str, Short] = {}
    """Node labels that hold the pods to this hardware; they match an autoscaler's future nodes too."""
    avoid_labels: dict[str, Annotated[list[Short], Field(max_length=64)]] = {}
    """Node labels of hardware that spec.hardware rules out: while no other is there, pods wait rather than use it."""
    nodes: Annotated[list[Short], Field(max_length=64)] = []
    """Nodes that the pods may run on, at most 64 of them."""
    passed_over: Annotated[list[PassedOver], Field(max_length=64)] = []
    """Nodes that do not count, and why, at most 64 of them."""


class Setting(ApiModel):
    """One setting that a rule looked at, whether or not it was applied."""

    name: Short
    """SGLang's field name, or a variable's name."""
    value: Json = None
    """The planned value; null when the setting is left alone."""
    applied: bool
    """True: the engine is told this value."""
    source: Source
    """Who decided."""
    rule: Short
    """The rule's name, such as ``qwen3_vl.hopper.feature_transport``."""
    reason: Text
    """Why, in one sentence."""
    evidence: Text | None = None
    """Where the value comes from: a measurement, a source, a formula."""
    expected: Json = None
    """For settings left to the engine: what this version will choose by itself, where known."""


class PlanMemory(ApiModel):
    """The memory sum of one device, and of the pod. Null where unknown."""

    image_bytes: int | None = None
    """Bytes of one preprocessed image (float32 patches)."""
    image_tokens: int | None = None
    """Tokens of one image in the language model."""
    feature_pool_mib: int | None = None
    """The pool for CUDA IPC image features, on the first GPU."""
    embedding_cache_mib: int | None = None
    """The engine's cache of image embeddings, on each device."""
    shared_memory_mib: int | None = None
    """/dev/shm; counts against the pod's memory limit."""
    weights_mib: int | None = None
    """Weights on one device."""
    kv_cache_mib: int | None = None
    """What is left for the KV cache on one device."""
    reserved_mib: int | None = None
    """What the engine keeps free for activations and CUDA graphs, and what is not free for it: CUDA's contexts, and the pool
    once more where the engine counts it twice."""
    host_memory_mib: int | None = None
    """Memory that the pod asks for."""


class PlanResources(ApiModel):
    """What one replica takes."""

    devices_per_pod: int
    """Devices that each pod asks for; 0 on the CPU."""
    pods: int
    """Pods of one replica: its number of nodes."""
    ephemeral_storage_mib: int | None = None
    """Disk of its node that each pod asks for, for the weights that it downloads there; null where it asks for none."""


class Finding(ApiModel):
    """Something that a person should know, with the next step in its message."""

    severity: Severity
    """Error, Warning or Info."""
    reason: Short
    """A CamelCase word for scripts."""
    message: Text
    """What is the matter and what to do about it, with the numbers."""
    path: Short | None = None
    """The field of the VLMService that it is about."""


class ExpectedHardware(ApiModel):
    """What the runtime must find before it starts the engine. Null: not checked."""

    device: Short
    """``cuda`` or ``cpu``."""
    devices: int
    """Devices in this pod."""
    compute_capability: Short | None = None
    """Such as ``9.0``."""
    memory_mib: int | None = None
    """Memory of each device in MiB."""
    mig: bool = False
    """True: the devices are MIG slices."""


class PlanRuntime(ApiModel):
    """What the runtime in the pod needs beside the engine's command line."""

    image: Short
    """The image that brings the runtime: the operator's own."""
    served_model_name: Short
    """The name that clients send."""
    startup_budget_seconds: int
    """How long a start may take before the pod is restarted."""
    startup_reason: Short = ""
    """Where that comes from: the weights' size, and how fast they are read from where they lie."""
    drain_seconds: int
    """How long running requests may take after the pod was told to stop."""
    hardware: ExpectedHardware
    """What the runtime must find before it starts the engine."""
    probe_image_width: int = 64
    """Width of the image in the first request, in pixels."""
    probe_image_height: int = 64
    """Height of the image in the first request, in pixels."""
    nodes: int = 1
    """Pods in one group; more than one makes the runtime read the group's address and rank."""


class ServingPlan(ApiModel):
    """Everything that was decided for one service, with the reasons."""

    api_version: Literal["vlmserve.dev/v1alpha1"] = "vlmserve.dev/v1alpha1"
    """The API's version."""
    kind: Literal["ServingPlan"] = "ServingPlan"
    """The kind."""
    service: ServiceRef
    """The service."""
    hash: Short = ""
    """Changes exactly when the running pods must change."""
    spec_digest: Short = ""
    """Digest of the part of the spec that plans are made from: while it stays, so does the plan."""
    engine: PlanEngine
    """The engine's command line and environment."""
    hardware: PlanHardware
    """The hardware that the plan was made for."""
    settings: Annotated[list[Setting], Field(max_length=256)] = []
    """Every setting that a rule looked at."""
    memory: PlanMemory = PlanMemory()
    """The memory sum."""
    resources: PlanResources
    """What one replica takes."""
    runtime: PlanRuntime
    """What the runtime in the pod needs."""
    findings: Annotated[list[Finding], Field(max_length=64)] = []
    """What a person should know."""
    manifests: list[dict[str, Any]] = []
    """Every object that would be applied, in order. Left out of the status and of the stored plan."""

    @property
    def errors(self) -> list[Finding]:
        """The findings that forbid to run this plan."""
        return [f for f in self.findings if f.severity is Severity.ERROR]

    def setting(self, name: str) -> Setting | None:
        """The setting of that name, or None where no rule looked at it."""
        return next((s for s in self.settings if s.name == name), None)

    def to_api(self) -> dict[str, Any]:
        """The JSON that scripts read. Nulls are shown, since "unknown" is an answer."""
        return self.model_dump(mode="json", by_alias=True)

    def without_manifests(self) -> ServingPlan:
        """The plan as it is stored and shown."""
        return self.model_copy(update={"manifests": []})
