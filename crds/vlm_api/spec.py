"""``VLMService.spec``. ``kubectl explain`` shows the docstrings."""

import json
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from vlm_api.base import (
    IMAGE,
    NO_PARENT,
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
    "Device", "Engine", "EnvVar", "Hardware", "Images", "Metrics", "ModelSpec", "Multinode", "Parallelism",
    "Reuse", "RolloutStrategy", "Scaling", "SecretKeyRef", "Security", "Tuning", "VLMServiceSpec", "Workload",
]  # fmt: skip

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
    """The model and the location of its files."""

    uri: Annotated[
        str,
        Field(min_length=1, max_length=1024),
        Matches(
            MODEL_URI,
            "must be hf://ORG/NAME or hf://NAME (revision in spec.model.revision), pvc://CLAIM/PATH, oci://IMAGE or "
            "file:///PATH",
        ),
        Matches(NO_PARENT, "must not contain .. in its path: write the resolved path"),
    ]
    """Location of the model: ``hf://ORG/NAME`` or ``hf://NAME`` (a Hugging Face id), ``pvc://CLAIM/PATH``, ``oci://IMAGE``
    (an image volume) or ``file:///PATH`` (a path inside the pod)."""
    revision: (
        Annotated[
            str,
            Field(min_length=1, max_length=253),
            Matches(r"^[^-\s][^\s]*$", "must not contain spaces or begin with '-'"),
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
                "must not contain spaces or colons (a colon separates the adapter's name) or begin with '-'",
            ),
        ]
        | None
    ) = None
    """The model name in requests. Default: the service's name."""
    architecture: (
        Annotated[
            str,
            Field(min_length=1, max_length=128),
            Matches(r"^[A-Za-z0-9_]+$", "must be a class name such as Qwen3VLForConditionalGeneration"),
        ]
        | None
    ) = None
    """The first entry of ``architectures`` in the model's config.json. Default: detected."""
    parameters_billion: Annotated[int, between(1, 100_000)] | None = None
    """The number of parameters in billions, rounded up. Default: detected."""
    token_secret_ref: SecretKeyRef | None = None
    """The Secret with the Hugging Face token, for gated and private models."""
    cache_claim: Name | None = None
    """A PersistentVolumeClaim that caches downloaded weights. Default: an emptyDir, so each pod downloads them again."""


class Scaling(ApiModel):
    """Autoscaling by requests in flight. Mutually exclusive with ``replicas``."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            message="minReplicas must not be greater than maxReplicas: lower minReplicas or raise maxReplicas",
            holds=lambda s: s.min_replicas <= s.max_replicas,
            field="minReplicas",
        ),
    )

    min_replicas: Annotated[int, between(1, 1000)] = 1
    """Minimum number of replicas."""
    max_replicas: Annotated[int, between(1, 1000)]
    """Maximum number of replicas."""
    target_in_flight: Annotated[int, between(1, 100_000)] | None = None
    """Target number of requests in flight per replica. Default: 80% of ``workload.concurrency``, or 32 if that is unset."""


MediaDomain = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Matches(
        r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$",
        "must be a host name such as images.example.com, without scheme, port or path",
    ),
]


class Security(ApiModel):
    """Access to the engine, and the hosts that it may fetch images from."""

    api_key_secret_ref: SecretKeyRef | None = None
    """The Secret with the API key that clients send as ``Authorization: Bearer``."""
    allowed_media_domains: Annotated[list[MediaDomain], Field(max_length=64), UniqueBy()] = []
    """Hosts that the engine may fetch images from if a request contains a URL. Default: every public host."""
    network_policy: StrictBool = True
    """If true, a NetworkPolicy limits egress to DNS, public addresses on ports 80 and 443, and what this spec names. Other
    addresses in the cluster and the cloud's metadata service are blocked. If false, no NetworkPolicy is created."""


class RolloutStrategy(ApiModel):
    """How a rollout replaces pods. By default the old pod is stopped first, because a spare GPU is rare."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",
            message="maxSurge and maxUnavailable must not both be zero: raise one of them, or no pod can be replaced",
            holds=lambda s: not (str(s.max_surge) in ("0", "0%") and str(s.max_unavailable) in ("0", "0%")),
            field="maxSurge",
        ),
    )

    max_surge: Surge = 0
    """Pods above the desired number during a rollout: a number or a percentage."""
    max_unavailable: Unavailable = 1
    """Pods that may be unavailable during a rollout: a number or a percentage."""


class Metrics(ApiModel):
    """How Prometheus scrapes the pods."""

    pod_monitor: StrictBool = False
    """If true, a PodMonitor for the Prometheus Operator scrapes the engine's and the runtime's metrics."""


# JSON of a whole spec. The largest real ones have some KiB; what is made from a spec must fit into a ConfigMap of 1 MiB, and
# a plan holds it several times.
MAX_SPEC_BYTES: Final = 128 * 1024


class VLMServiceSpec(ApiModel):
    """The desired state of a served vision-language model."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.scaling) || !has(self.replicas) || self.replicas == 1",
            message="replicas and scaling are mutually exclusive: remove one of them (replicas may stay at 1, its default)",
            holds=lambda s: s.scaling is None or s.replicas in (None, 1),
            field="replicas",
        ),
        Rule(
            cel="(self.parallelism.tensor * self.parallelism.pipeline) % self.multinode.nodeCount == 0",
            message="parallelism.tensor x parallelism.pipeline must be a multiple of multinode.nodeCount",
            # `+` between strings has no cost limit for the API server; `format` has one.
            message_cel=(
                "'parallelism.tensor x parallelism.pipeline is %d, which is not a multiple of multinode.nodeCount %d: "
                "choose a multiple'.format([self.parallelism.tensor * self.parallelism.pipeline,"
                " self.multinode.nodeCount])"
            ),
            holds=lambda s: s.parallelism.tensor * s.parallelism.pipeline % s.multinode.node_count == 0,
            sentence=lambda s: (
                f"parallelism.tensor x parallelism.pipeline is {s.parallelism.tensor * s.parallelism.pipeline}, "
                f"which is not a multiple of multinode.nodeCount {s.multinode.node_count}: choose a multiple"
            ),
            field="multinode.nodeCount",
        ),
        Rule(
            cel="self.parallelism.data == 1 || self.multinode.nodeCount == 1",
            message=(
                "parallelism.data requires one node per replica: set it to 1, or set multinode.nodeCount to 1 and use replicas"
            ),
            holds=lambda s: s.parallelism.data == 1 or s.multinode.node_count == 1,
            field="parallelism.data",
        ),
        Rule(
            cel="self.hardware.device != 'cpu' || self.multinode.nodeCount == 1 || self.parallelism.tensor > 1",
            message=("several CPU nodes require parallelism.tensor above 1: raise it, or set multinode.nodeCount to 1"),
            holds=lambda s: s.hardware.device != Device.CPU or s.multinode.node_count == 1 or s.parallelism.tensor > 1,
            field="multinode.nodeCount",
        ),
    )

    model: ModelSpec
    """The model."""

    @model_validator(mode="before")
    @classmethod
    def _is_not_too_large(cls, data: Any) -> Any:
        """Before any other work, since that grows with the size."""
        if isinstance(data, dict):
            try:
                size = len(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
            except (TypeError, ValueError, RecursionError):
                return data  # not from JSON: built from types, or refused for its depth
            if size > MAX_SPEC_BYTES:
                text = (
                    f"has {size} bytes of JSON, but must have at most {MAX_SPEC_BYTES}: "
                    "move long values into a ConfigMap or the image"
                )
                raise PydanticCustomError("rule", "{text}", {"text": text})
        return data

    replicas: Annotated[int, between(0, 1000)] | None = None
    """Number of replicas. Default: 1. Mutually exclusive with ``scaling``."""
    scaling: Scaling | None = None
    """Autoscaling instead of a fixed number of ``replicas``."""
    parallelism: Parallelism = Parallelism()
    """How one replica is split over GPUs."""
    multinode: Multinode = Multinode()
    """How many nodes one replica spans."""
    workload: Workload = Workload()
    """The expected traffic."""
    hardware: Hardware = Hardware()
    """Hardware requirements."""
    engine: Engine = Engine()
    """The SGLang engine and your choices for it."""
    security: Security = Security()
    """API key, media domains and network access."""
    shared_memory_size: Quantity | None = None
    """Size of /dev/shm, such as ``16Gi``. Default: computed."""
    rollout_strategy: RolloutStrategy = RolloutStrategy()
    """How a rollout replaces pods."""
    metrics: Metrics = Metrics()
    """How Prometheus scrapes the pods."""
    template: PodTemplate = {}
    """A core/v1 PodTemplateSpec, strategically merged over the operator's. The engine's container is ``main``."""
    suspend: StrictBool = False
    """If true, there are no pods, but the plan is still made and shown."""
