"""``VLMService.spec``. ``kubectl explain`` shows the docstrings."""

import json
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from vlm_api.base import ApiModel, Matches, Quantity, Rule, UniqueBy, between
from vlm_api.engine import Engine, EnvVar, Tuning
from vlm_api.hardware import Device, Hardware, Multinode, Parallelism
from vlm_api.model import ModelSpec, SecretKeyRef
from vlm_api.pools import MAX_POOLS, PoolSpec
from vlm_api.router import Affinity, Router
from vlm_api.scaling import RolloutStrategy, Scaling
from vlm_api.template import PodTemplate
from vlm_api.workload import Images, Reuse, Workload

__all__ = [
    "Affinity", "Device", "Engine", "EnvVar", "Hardware", "Images", "Metrics", "ModelSpec", "Multinode", "Parallelism",
    "PoolSpec", "Reuse", "RolloutStrategy", "Router", "Scaling", "SecretKeyRef", "Security", "Tuning", "VLMServiceSpec",
    "Workload",
]  # fmt: skip

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
        Rule(
            cel="has(self.router) || !has(self.pools) || self.pools.all(p, !has(p.weight))",
            message="a weight needs a router: set spec.router, or remove the weights",
            holds=lambda s: s.router is not None or all(pool.weight is None for pool in s.pools),
            field="pools",
        ),
        Rule(
            cel="!has(self.pools) || self.pools.all(p, has(p.weight)) || self.pools.all(p, !has(p.weight))",
            message="weights must stand in all pools or in none: add those that are missing, or remove all",
            holds=lambda s: len({pool.weight is None for pool in s.pools}) < 2,
            field="pools",
        ),
        Rule(
            cel="!has(self.pools) || self.pools.size() == 0 || self.pools.exists(p, !has(p.weight) || p.weight > 0)",
            message="at least one pool must have a weight above 0, or no request is answered",
            holds=lambda s: not s.pools or any(pool.weight is None or pool.weight > 0 for pool in s.pools),
            field="pools",
        ),
        Rule(
            cel=(
                "!has(self.pools) || self.pools.size() == 0 || "
                "(!has(self.scaling) && (!has(self.replicas) || self.replicas == 1))"
            ),
            message="with pools, each pool has replicas or scaling of its own: move them into spec.pools",
            holds=lambda s: not s.pools or (s.scaling is None and s.replicas in (None, 1)),
            field="pools",
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
    router: Router | None = None
    """An Envoy that spreads requests over the engines. Default: none, a plain Service."""
    pools: Annotated[list[PoolSpec], Field(max_length=MAX_POOLS), UniqueBy("name")] = []
    """Groups of equal replicas behind the service's address. Default: one pool, made of the fields above."""
