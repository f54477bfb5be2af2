"""What a user writes: ``VLMService.spec``, field by field. The docstrings are what ``kubectl explain`` shows."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vlm_api.base import DNS_SUBDOMAIN, ApiModel, CountOrPercent, Json, Name, Quantity, Rule, Token

MODEL_URI = (
    r"^(hf://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?"
    r"|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^\s]*)?"
    r"|oci://[^\s]+"
    r"|file:///[^\s]*)$"
)


class SecretKeyRef(ApiModel):
    """One key of a Secret in the service's namespace."""

    name: Name
    """The Secret's name."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """The key inside the Secret."""


class ModelSpec(ApiModel):
    """Which model is served, and where its files come from."""

    uri: Annotated[str, Field(min_length=6, max_length=1024, pattern=MODEL_URI)]
    """Where the model is: ``hf://ORG/NAME`` (a model hub id), ``pvc://CLAIM/PATH``, ``oci://IMAGE`` (an image volume) or ``file:///PATH`` (a path inside the pod)."""
    revision: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Branch, tag or commit of a hub model. Default: the hub's default branch."""
    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^:\s]+$")] | None = None
    """The model name that clients send. Default: the service's name."""
    architecture: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_]+$")] | None = None
    """The first entry of ``architectures`` in the model's config.json. Default: found out."""
    parameters_billion: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """The number of parameters in billions, rounded up. Default: found out."""
    token_secret_ref: SecretKeyRef | None = None
    """The Secret with the hub's access token, for gated and private models."""
    cache_claim: Name | None = None
    """A PersistentVolumeClaim that keeps downloaded weights. Default: an emptyDir, downloaded anew by each pod."""


class Scaling(ApiModel):
    """Autoscaling by requests in flight. Excludes ``replicas``."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            message="minReplicas must not be greater than maxReplicas",
            holds=lambda s: s.min_replicas <= s.max_replicas,
            field="minReplicas",
        ),
    )

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """The fewest replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """The most replicas."""
    target_in_flight: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Requests in flight per replica to aim at. Default: 80 % of ``workload.concurrency``, or 32 where that is unset."""


class Parallelism(ApiModel):
    """How one copy of the model is spread over GPUs."""

    tensor: Annotated[int, Field(ge=1, le=1024)] = 1
    """Tensor parallelism: every layer split over this many GPUs."""
    pipeline: Annotated[int, Field(ge=1, le=1024)] = 1
    """Pipeline parallelism: the layers split into this many stages."""
    data: Annotated[int, Field(ge=1, le=1024)] = 1
    """Data parallelism: this many engine replicas inside one pod. One node only."""


class Multinode(ApiModel):
    """Serving with one copy of the model over several nodes."""

    node_count: Annotated[int, Field(ge=1, le=256)] = 1
    """Nodes per replica. More than one needs the LeaderWorkerSet controller in the cluster."""


class Reuse(str, Enum):
    """Whether clients send the same image more than once."""

    SINGLE_USE = "SingleUse"
    REPEATED = "Repeated"
    UNKNOWN = "Unknown"


class Images(ApiModel):
    """The images of a typical request."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.width) == has(self.height)",
            message="width and height go together: give both or neither",
            holds=lambda s: (s.width is None) == (s.height is None),
            field="width",
        ),
    )

    per_request: Annotated[int, Field(ge=1, le=256)] = 1
    """Images in one request."""
    width: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Width in pixels, before the model's own resizing."""
    height: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Height in pixels, before the model's own resizing."""
    reuse: Reuse = Reuse.UNKNOWN
    """``SingleUse``: each image is seen once. ``Repeated``: the same image comes back, so caches pay. ``Unknown`` is planned like ``SingleUse``, as the engine itself assumes."""
    enforce: bool = False
    """True: the engine refuses requests with more or larger images than declared here."""


class Workload(ApiModel):
    """What the traffic is like. This is what sizes everything."""

    concurrency: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Requests in flight per replica. Unset: left to the engine."""
    input_tokens: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Text tokens in a typical prompt, without the images. Unset: 1,024 in the memory sum."""
    output_tokens: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Tokens in a typical answer. Unset: 256 in the memory sum."""
    max_request_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """The longest a request may run, in seconds. A pod that is told to stop waits this long for its last answer."""
    images: Images = Images()
    """The images of a typical request."""


class Device(str, Enum):
    """What computes."""

    CUDA = "cuda"
    CPU = "cpu"


class Hardware(ApiModel):
    """Wishes about the hardware. Without them the cluster's nodes decide."""

    device: Device = Device.CUDA
    """``cuda``, or ``cpu`` for trying things out without a GPU (slow)."""
    compute_capability: Annotated[str, Field(max_length=8, pattern=r"^[0-9]{1,3}\.[0-9]{1,2}$")] | None = None
    """Only GPUs of this compute capability, such as ``"9.0"``."""
    min_memory_mib: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Only GPUs with at least this much memory each, in MiB."""
    products: Annotated[list[Token], Field(max_length=32)] = []
    """Only these products, as GPU feature discovery names them (label ``nvidia.com/gpu.product``)."""
    resource_name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^([a-z0-9.-]+/)[A-Za-z0-9._-]+$")] = (
        "nvidia.com/gpu"
    )
    """The extended resource that the pods ask for."""
    runtime_class_name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)] | None = None
    """A RuntimeClass, where GPUs need one that is not the cluster's default."""


class Tuning(str, Enum):
    """Who decides the engine's settings."""

    AUTO = "Auto"
    OFF = "Off"


class EnvVar(ApiModel):
    """An environment variable, as in a pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            message="value and valueFrom exclude each other: give one of them",
            holds=lambda s: s.value is None or s.value_from is None,
            field="valueFrom",
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    """The variable's name."""
    value: Annotated[str, Field(max_length=32_768)] | None = None
    """The value itself. Secrets belong into ``valueFrom``."""
    value_from: dict[str, Json] | None = None
    """Where the value comes from: core/v1 EnvVarSource."""


class Engine(ApiModel):
    """The SGLang engine, and what the user decides about it."""

    version: (
        Annotated[str, Field(min_length=1, max_length=64, pattern=r"^v?[0-9]+\.[0-9]+\.[0-9]+([.-]?[A-Za-z0-9]+)*$")]
        | None
    ) = None
    """SGLang's version. Default: what the image's tag says; without an image, the newest that the operator knows."""
    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")] | None = None
    """The engine's image. Default: SGLang's own image of that version."""
    tuning: Tuning = Tuning.AUTO
    """``Auto``: the operator works the settings out. ``Off``: only what is written here."""
    settings: Annotated[dict[str, Json], Field(max_length=128)] = {}
    """Settings by SGLang's own field name (``prefill_decode_interval``) or variable name (``SGLANG_VLM_CACHE_SIZE_MB``). Always win."""
    args: Annotated[list[Annotated[str, Field(max_length=8192)]], Field(max_length=128)] = []
    """Full engine flags (``--log-requests``), after everything else. Always win over ``settings``."""
    env: Annotated[list[EnvVar], Field(max_length=128)] = []
    """Environment variables of the engine's container. Always win over ``settings``."""


class Security(ApiModel):
    """Who may talk to the engine, and where it may fetch images from."""

    api_key_secret_ref: SecretKeyRef | None = None
    """The Secret with the key that clients must send as ``Authorization: Bearer``."""
    allowed_media_domains: Annotated[list[Token], Field(max_length=64)] = []
    """Hosts from which the engine may fetch images that a request names by URL."""


class RolloutStrategy(ApiModel):
    """How a changed plan replaces running pods. A spare GPU is rare, so by default the old pod makes room first."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",
            message="maxSurge and maxUnavailable must not both be zero: no pod could ever be replaced",
            holds=lambda s: not (str(s.max_surge) in ("0", "0%") and str(s.max_unavailable) in ("0", "0%")),
            field="maxSurge",
        ),
    )

    max_surge: CountOrPercent = 0
    """Pods above the wanted number during a roll-out: a number or a percentage."""
    max_unavailable: CountOrPercent = 1
    """Pods that may be missing during a roll-out: a number or a percentage."""


class Metrics(ApiModel):
    """How the pods are watched."""

    pod_monitor: bool = False
    """True: a PodMonitor for the Prometheus operator, for the engine's and the runtime's metrics."""


def _divides(s: Any) -> bool:
    return bool((s.parallelism.tensor * s.parallelism.pipeline) % s.multinode.node_count == 0)


class VLMServiceSpec(ApiModel):
    """A vision-language model, served."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.scaling) || !has(self.replicas) || self.replicas == 1",
            message="replicas and scaling exclude each other: remove one of them (replicas may stay at its default of 1)",
            holds=lambda s: s.scaling is None or s.replicas in (None, 1),
            field="replicas",
        ),
        Rule(
            cel="(self.parallelism.tensor * self.parallelism.pipeline) % self.multinode.nodeCount == 0",
            message="parallelism.tensor x parallelism.pipeline must be a multiple of multinode.nodeCount",
            message_cel="'parallelism.tensor x parallelism.pipeline is ' + string(self.parallelism.tensor * self.parallelism.pipeline) + "
            "', which does not divide over multinode.nodeCount ' + string(self.multinode.nodeCount) + ': choose a multiple'",
            holds=_divides,
            sentence=lambda s: (
                f"parallelism.tensor x parallelism.pipeline is {s.parallelism.tensor * s.parallelism.pipeline}, "
                f"which does not divide over multinode.nodeCount {s.multinode.node_count}: choose a multiple"
            ),
            field="multinode.nodeCount",
        ),
        Rule(
            cel="self.parallelism.data == 1 || self.multinode.nodeCount == 1",
            message="parallelism.data works inside one node only: set it to 1, or multinode.nodeCount to 1 and use replicas",
            holds=lambda s: s.parallelism.data == 1 or s.multinode.node_count == 1,
            field="parallelism.data",
        ),
        Rule(
            cel="self.hardware.device != 'cpu' || self.multinode.nodeCount == 1 || self.parallelism.tensor > 1",
            message="several nodes need parallelism.tensor above 1 on the CPU",
            holds=lambda s: s.hardware.device != Device.CPU or s.multinode.node_count == 1 or s.parallelism.tensor > 1,
            field="multinode.nodeCount",
        ),
    )

    model: ModelSpec
    """Which model is served."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Copies of the service. Default 1. Excludes ``scaling``."""
    scaling: Scaling | None = None
    """Autoscaling, instead of ``replicas``."""
    parallelism: Parallelism = Parallelism()
    """How one copy of the model is spread over GPUs."""
    multinode: Multinode = Multinode()
    """How many nodes one copy takes."""
    workload: Workload = Workload()
    """What the traffic is like."""
    hardware: Hardware = Hardware()
    """Wishes about the hardware."""
    engine: Engine = Engine()
    """The SGLang engine, and what the user decides about it."""
    security: Security = Security()
    """Keys and media domains."""
    shared_memory_size: Quantity | None = None
    """Size of /dev/shm as a quantity, such as ``16Gi``. Default: computed."""
    rollout_strategy: RolloutStrategy = RolloutStrategy()
    """How a changed plan replaces running pods."""
    metrics: Metrics = Metrics()
    """How the pods are watched."""
    template: dict[str, Json] = {}
    """A core/v1 PodTemplateSpec, merged strategically over the operator's own. The engine's container is ``main``."""
    suspend: bool = False
    """True: no pods, but the plan is still made and shown."""
