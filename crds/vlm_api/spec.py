"""What a user writes: ``VLMService.spec``, field by field. The docstrings are what ``kubectl explain`` shows."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictBool

from vlm_api.base import (
    IMAGE,
    NO_STEP_UP,
    ApiModel,
    Matches,
    Name,
    Quantity,
    Rule,
    Surge,
    Unavailable,
    UniqueBy,
    between,
)
from vlm_api.engine import Engine, EnvVar, Tuning
from vlm_api.hardware import Device, Hardware, Multinode, Parallelism
from vlm_api.template import PodTemplate
from vlm_api.workload import Images, Reuse, Workload

__all__ = [
    "Device",
    "Engine",
    "EnvVar",
    "Hardware",
    "Images",
    "Metrics",
    "ModelSpec",
    "Multinode",
    "Parallelism",
    "Reuse",
    "RolloutStrategy",
    "Scaling",
    "SecretKeyRef",
    "Security",
    "Tuning",
    "VLMServiceSpec",
    "Workload",
]

MODEL_URI = (
    r"^(hf://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?"
    r"|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^\s]*)?"
    rf"|oci://{IMAGE}"
    r"|file:///[^\s]*)$"
)


class SecretKeyRef(ApiModel):
    """One key of a Secret in the service's namespace."""

    name: Name
    """The Secret's name."""
    key: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Matches(r"^[-._a-zA-Z0-9]+$", "must be a key of a Secret: letters, digits, '-', '_' and '.'"),
    ]
    """The key inside the Secret."""


class ModelSpec(ApiModel):
    """Which model is served, and where its files come from."""

    uri: Annotated[
        str,
        Field(min_length=1, max_length=1024),
        Matches(
            MODEL_URI,
            "must be hf://ORG/NAME or hf://NAME (with spec.model.revision beside it), pvc://CLAIM/PATH, oci://IMAGE or "
            "file:///PATH",
        ),
        Matches(NO_STEP_UP, "must not have .. in its path: write the path that is meant"),
    ]
    """Where the model is: ``hf://ORG/NAME`` or ``hf://NAME`` (a model hub id), ``pvc://CLAIM/PATH``, ``oci://IMAGE``
    (an image volume) or ``file:///PATH`` (a path inside the pod)."""
    revision: (
        Annotated[
            str,
            Field(min_length=1, max_length=253),
            Matches(r"^[^-\s][^\s]*$", "must not have spaces in it or begin with '-', as a flag does"),
        ]
        | None
    ) = None
    """Branch, tag or commit of a hub model. Default: the hub's default branch."""
    name: (
        Annotated[
            str,
            Field(min_length=1, max_length=253),
            Matches(
                r"^[^-:\s][^:\s]*$",
                "must not have spaces or colons in it (what follows a colon names an adapter) or begin with '-'",
            ),
        ]
        | None
    ) = None
    """The model name that clients send. Default: the service's name."""
    architecture: (
        Annotated[
            str,
            Field(min_length=1, max_length=128),
            Matches(r"^[A-Za-z0-9_]+$", "must be a class name such as Qwen3VLForConditionalGeneration"),
        ]
        | None
    ) = None
    """The first entry of ``architectures`` in the model's config.json. Default: found out."""
    parameters_billion: Annotated[int, between(1, 100_000)] | None = None
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
            message="minReplicas must not be greater than maxReplicas: lower one or raise the other",
            holds=lambda s: s.min_replicas <= s.max_replicas,
            field="minReplicas",
        ),
    )

    min_replicas: Annotated[int, between(1, 1000)] = 1
    """The fewest replicas."""
    max_replicas: Annotated[int, between(1, 1000)]
    """The most replicas."""
    target_in_flight: Annotated[int, between(1, 100_000)] | None = None
    """Requests in flight per replica to aim at. Default: 80 % of ``workload.concurrency``, or 32 without one."""


MediaDomain = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Matches(
        r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$",
        "must be a host name such as images.example.com, without scheme, port and path",
    ),
]


class Security(ApiModel):
    """Who may talk to the engine, and where it may fetch images from."""

    api_key_secret_ref: SecretKeyRef | None = None
    """The Secret with the key that clients must send as ``Authorization: Bearer``."""
    allowed_media_domains: Annotated[list[MediaDomain], Field(max_length=64), UniqueBy()] = []
    """Hosts from which the engine may fetch images that a request names by URL. Default: every public host."""
    network_policy: StrictBool = True
    """False: no NetworkPolicy is made. With it, pods reach DNS, public addresses on ports 80 and 443, and what this spec
    names; nothing else in the cluster, and no cloud's metadata service."""


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

    max_surge: Surge = 0
    """Pods above the wanted number during a roll-out: a number or a percentage."""
    max_unavailable: Unavailable = 1
    """Pods that may be missing during a roll-out: a number or a percentage."""


class Metrics(ApiModel):
    """How the pods are watched."""

    pod_monitor: StrictBool = False
    """True: a PodMonitor for the Prometheus operator, for the engine's and the runtime's metrics."""


def _divides(s: Any) -> bool:
    return bool((s.parallelism.tensor * s.parallelism.pipeline) % s.multinode.node_count == 0)


class VLMServiceSpec(ApiModel):
    """A vision-language model, served."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.scaling) || !has(self.replicas) || self.replicas == 1",
            message="replicas and scaling exclude each other: remove one of them (replicas may stay at 1, its default)",
            holds=lambda s: s.scaling is None or s.replicas in (None, 1),
            field="replicas",
        ),
        Rule(
            cel="(self.parallelism.tensor * self.parallelism.pipeline) % self.multinode.nodeCount == 0",
            message="parallelism.tensor x parallelism.pipeline must be a multiple of multinode.nodeCount",
            # `+` between strings has no cost limit for the API server; `format` has one.
            message_cel=(
                "'parallelism.tensor x parallelism.pipeline is %d, which does not divide over multinode.nodeCount %d: "
                "choose a multiple'.format([self.parallelism.tensor * self.parallelism.pipeline,"
                " self.multinode.nodeCount])"
            ),
            holds=_divides,
            sentence=lambda s: (
                f"parallelism.tensor x parallelism.pipeline is {s.parallelism.tensor * s.parallelism.pipeline}, "
                f"which does not divide over multinode.nodeCount {s.multinode.node_count}: choose a multiple"
            ),
            field="multinode.nodeCount",
        ),
        Rule(
            cel="self.parallelism.data == 1 || self.multinode.nodeCount == 1",
            message=(
                "parallelism.data works inside one node only: set it to 1, or multinode.nodeCount to 1 and use replicas"
            ),
            holds=lambda s: s.parallelism.data == 1 or s.multinode.node_count == 1,
            field="parallelism.data",
        ),
        Rule(
            cel="self.hardware.device != 'cpu' || self.multinode.nodeCount == 1 || self.parallelism.tensor > 1",
            message=(
                "on the CPU several nodes need parallelism.tensor above 1: raise it, or set multinode.nodeCount to 1"
            ),
            holds=lambda s: s.hardware.device != Device.CPU or s.multinode.node_count == 1 or s.parallelism.tensor > 1,
            field="multinode.nodeCount",
        ),
    )

    model: ModelSpec
    """Which model is served."""
    replicas: Annotated[int, between(0, 1000)] | None = None
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
    """Keys, media domains and networks."""
    shared_memory_size: Quantity | None = None
    """Size of /dev/shm as a quantity, such as ``16Gi``. Default: computed."""
    rollout_strategy: RolloutStrategy = RolloutStrategy()
    """How a changed plan replaces running pods."""
    metrics: Metrics = Metrics()
    """How the pods are watched."""
    template: PodTemplate = {}
    """A core/v1 PodTemplateSpec, merged strategically over the operator's own. The engine's container is ``main``."""
    suspend: StrictBool = False
    """True: no pods, but the plan is still made and shown."""
