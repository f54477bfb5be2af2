"""The ServingPlan: all decisions for a service, with hardware, reasons and objects."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from vlm_api.base import ApiModel, Json
from vlm_api.bounds import cut
from vlm_api.limits import RequestLimits
from vlm_api.names import MAIN_POOL
from vlm_api.reasons import USUAL, FindingReason
from vlm_api.reasons import About as About

MAX_TEXT: Final = 4096
MAX_SHORT: Final = 512
MAX_WORDS: Final = 512
MAX_SETTINGS: Final = 256
MAX_FINDINGS: Final = 64
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Short = Annotated[str, Field(max_length=MAX_SHORT)]


class Source(str, Enum):
    """The source of a setting, in order of precedence."""

    USER = "user"
    WORKLOAD = "workload"
    PROFILE = "profile"
    HARDWARE = "hardware"
    ENGINE = "engine"


class Severity(str, Enum):
    """The severity of a finding. With an Error, the plan cannot run."""

    ERROR = "Error"
    WARNING = "Warning"
    INFO = "Info"


class Sharing(str, Enum):
    """How a physical GPU is split between pods."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"


class Role(str, Enum):
    """What the pods of a pool do."""

    SERVE = "Serve"
    """They answer requests."""
    ENCODE = "Encode"
    """They encode images for pools that serve."""


class ServiceRef(ApiModel):
    """The service of a plan."""

    name: Short
    """The VLMService's name."""
    namespace: Short
    """Its namespace."""


class PlanEngine(ApiModel):
    """The engine's command line and environment."""

    name: Literal["sglang"] = "sglang"
    """The engine."""
    version: Short | None = None
    """Its version; null if unknown."""
    image: Short
    """The image of the engine's container."""
    args: Annotated[list[Text], Field(max_length=MAX_WORDS)] = []
    """Arguments of ``python3 -m sglang.launch_server``, in order, without secrets."""
    env: dict[str, Text] = {}
    """Environment variables with literal values. References to Secrets are only in the pod."""

    @property
    def scheme(self) -> str:
        """``https`` if the engine has a certificate (``--ssl-certfile``), else ``http``."""
        return "https" if any(arg.partition("=")[0] == "--ssl-certfile" for arg in self.args) else "http"


class PassedOver(ApiModel):
    """A skipped node."""

    node: Short
    """The node's name."""
    reason: Text
    """Why it was skipped."""


class PlanHardware(ApiModel):
    """The hardware that the plan is for."""

    device: Short
    """``cuda`` or ``cpu``."""
    compute_capability: Short | None = None
    """Such as ``9.0``; null if unknown."""
    architecture: Short | None = None
    """Such as ``hopper``, derived from the compute capability."""
    product: Short | None = None
    """The product's name in the cluster."""
    memory_mib: int | None = None
    """Memory per device in MiB; null if unknown."""
    driver: Short | None = None
    """Driver version, such as ``580.95.05``; null if unknown or different between nodes."""
    devices_per_node: int | None = None
    """Devices per node: GPUs or MIG slices."""
    sharing: Sharing = Sharing.NONE
    """How GPUs are shared."""
    source: Short = "unknown"
    """Source of these facts: gfd (GPU feature discovery), dra, gke, aks, karpenter, coreweave, nvml, spec or unknown."""
    resource_name: Short | None = None
    """The extended resource that pods request; null with resource claims, or on the CPU."""
    claims: bool = False
    """True if devices are allocated by dynamic resource allocation."""
    match_labels: dict[str, Short] = {}
    """Node labels that pods require; they match nodes that an autoscaler adds later, too."""
    avoid_labels: dict[str, Annotated[list[Short], Field(max_length=64)]] = {}
    """Node labels that pods avoid, because spec.hardware excludes that hardware. Pods wait for other nodes."""
    nodes: Annotated[list[Short], Field(max_length=64)] = []
    """Up to 64 nodes that pods can run on."""
    passed_over: Annotated[list[PassedOver], Field(max_length=64)] = []
    """Up to 64 skipped nodes with reasons."""


class Setting(ApiModel):
    """A setting that a rule considered, applied or not."""

    name: Short
    """SGLang's field name or environment variable."""
    value: Json = None
    """The planned value; null for an engine default."""
    applied: bool
    """True if the value is passed to the engine."""
    source: Source
    """Where the value comes from."""
    rule: Short
    """The rule's name, such as ``qwen3_vl.hopper.feature_transport``."""
    reason: Text
    """Why, in one sentence."""
    evidence: Text | None = None
    """Evidence for the value: a measurement, source code or a formula."""
    expected: Json = None
    """For engine defaults: the value that this version is expected to choose, if known."""


class PlanMemory(ApiModel):
    """Memory of a device and a pod, in MiB. Null if unknown."""

    image_bytes: int | None = None
    """Bytes of one preprocessed image, in the tensor that the feature pool can hold."""
    image_extra_bytes: int | None = None
    """Bytes of its other large tensors, such as tiles: they travel too, but never in the feature pool."""
    image_tokens: int | None = None
    """Tokens of one image that the vision encoder fills."""
    image_prompt_tokens: int | None = None
    """All tokens that one image adds to the prompt, with marks for start, end, rows and tiles."""
    video_frames: int | None = None
    """Frames that the engine takes out of one video."""
    video_bytes: int | None = None
    """Bytes of one preprocessed video, in the tensor that the feature pool can hold."""
    video_tokens: int | None = None
    """Tokens of one video that the vision encoder fills."""
    video_prompt_tokens: int | None = None
    """All tokens that one video adds to the prompt, with marks and times of its frames."""
    feature_pool_mib: int | None = None
    """The feature pool for CUDA IPC, on the first GPU."""
    embedding_cache_mib: int | None = None
    """The engine's embedding cache, on each device."""
    shared_memory_mib: int | None = None
    """Size of /dev/shm, which counts against the pod's memory limit."""
    weights_mib: int | None = None
    """Weights per device."""
    kv_cache_mib: int | None = None
    """Memory left for the KV cache per device."""
    requests: int | None = None
    """Declared requests that the KV cache of a replica holds at once, with the states of layers that have none."""
    reserved_mib: int | None = None
    """Memory that the engine keeps free for activations and CUDA graphs, and memory that it cannot use: CUDA contexts, and
    the feature pool a second time if the engine counts it twice."""
    host_memory_mib: int | None = None
    """The pod's memory request, including /dev/shm."""


class PlanResources(ApiModel):
    """What one replica requires."""

    devices_per_pod: int
    """Devices per pod; 0 on the CPU."""
    pods: int
    """Pods per replica: one per node."""
    ephemeral_storage_mib: int | None = None
    """Ephemeral storage that each pod requests for downloaded weights; null if it requests none."""


class Finding(ApiModel):
    """Something the user should know. The message includes the next step."""

    severity: Severity
    """Error, Warning or Info."""
    reason: Short
    """A CamelCase reason for programs."""
    about: About
    """What it is about: Hardware, Engine, Resources or Cluster."""
    message: Text
    """What is wrong, the numbers, and what to do."""
    path: Short | None = None
    """The VLMService field that it refers to."""

    @property
    def is_usual(self) -> bool:
        """Whether plans of ordinary services have it, so that a table may leave it out."""
        return self.reason in USUAL


def error(reason: FindingReason, message: str, path: str | None = None) -> Finding:
    """A finding that forbids to run the plan."""
    return _finding(Severity.ERROR, reason, message, path)


def warning(reason: FindingReason, message: str, path: str | None = None) -> Finding:
    """A finding that the user should act on."""
    return _finding(Severity.WARNING, reason, message, path)


def info(reason: FindingReason, message: str, path: str | None = None) -> Finding:
    """A finding that the user should know."""
    return _finding(Severity.INFO, reason, message, path)


def _finding(severity: Severity, reason: FindingReason, message: str, path: str | None) -> Finding:
    path = None if path is None else cut(path, MAX_SHORT)
    message = cut(message, MAX_TEXT)
    return Finding(severity=severity, reason=reason.value, about=reason.about, message=message, path=path)


class ExpectedHardware(ApiModel):
    """The hardware that the runtime requires before it starts the engine. Null: not checked."""

    device: Short
    """``cuda`` or ``cpu``."""
    devices: int
    """Devices in this pod."""
    compute_capability: Short | None = None
    """Such as ``9.0``."""
    memory_mib: int | None = None
    """Memory per device in MiB."""
    mig: bool = False
    """True if the devices are MIG slices."""


class PlanRuntime(ApiModel):
    """What the runtime in the pod needs besides the engine's command line."""

    image: Short
    """The image that contains the runtime: the operator's."""
    served_model_name: Short
    """The model name in requests."""
    startup_budget_seconds: int
    """Seconds that a start may take before the pod is restarted."""
    startup_reason: Short = ""
    """How the budget was computed: the size of the weights and the expected read rate."""
    drain_seconds: int
    """Seconds that running requests may take while the pod drains."""
    hardware: ExpectedHardware
    """The hardware that the runtime checks before it starts the engine."""
    probe_image_width: int = 64
    """Width of the image in the first request, in pixels."""
    probe_image_height: int = 64
    """Height of the image in the first request, in pixels."""
    nodes: int = 1
    """Pods per group. With more than one, the runtime reads the leader's address and the pod's rank."""
    limits: RequestLimits | None = None
    """What one request may bring; null for the usual limits."""


class RouterPlan(ApiModel):
    """The router of a service, with reasons."""

    image: Short
    """Envoy's image."""
    replicas: int
    """Number of routers."""
    settings: Annotated[list[Setting], Field(max_length=MAX_SETTINGS)] = []
    """What the router does: affinity, weights, limits and memory."""
    findings: Annotated[list[Finding], Field(max_length=MAX_FINDINGS)] = []
    """What the user should know."""

    @property
    def errors(self) -> list[Finding]:
        """Findings that forbid to run the router."""
        return [f for f in self.findings if f.severity is Severity.ERROR]


class ServingPlan(ApiModel):
    """All decisions for one pool of a service, with reasons."""

    api_version: Literal["vlmserve.dev/v1alpha1"] = "vlmserve.dev/v1alpha1"
    """The API's version."""
    kind: Literal["ServingPlan"] = "ServingPlan"
    """The kind."""
    service: ServiceRef
    """The service."""
    pool: Short = MAIN_POOL
    """The service's pool."""
    role: Role = Role.SERVE
    """What its pods do."""
    hash: Short = ""
    """Changes exactly when the running pods must change."""
    spec_digest: Short = ""
    """Digest of the spec fields that plans are made from. A new plan is made if it changes."""
    engine: PlanEngine
    """The engine's command line and environment."""
    hardware: PlanHardware
    """The hardware that the plan is for."""
    settings: Annotated[list[Setting], Field(max_length=MAX_SETTINGS)] = []
    """Every setting that a rule considered."""
    memory: PlanMemory = PlanMemory()
    """Memory of a device and a pod."""
    resources: PlanResources
    """What one replica requires."""
    runtime: PlanRuntime
    """Configuration of the runtime in the pod."""
    findings: Annotated[list[Finding], Field(max_length=MAX_FINDINGS)] = []
    """What the user should know."""
    manifests: list[dict[str, Any]] = []
    """Every object that would be applied, in order. Not in the status and the stored plan."""

    @property
    def errors(self) -> list[Finding]:
        """The findings that prevent this plan from running."""
        return [f for f in self.findings if f.severity is Severity.ERROR]

    def setting(self, name: str) -> Setting | None:
        """The setting with that name, or None if no rule considered it."""
        return next((s for s in self.settings if s.name == name), None)

    def to_api(self) -> dict[str, Any]:
        """The JSON output. It includes nulls: they mean "unknown"."""
        return self.model_dump(mode="json", by_alias=True)

    def without_manifests(self) -> ServingPlan:
        """The plan as stored and shown in the status."""
        return self.model_copy(update={"manifests": []})
