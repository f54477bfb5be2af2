"""``spec.pools``: groups of equal replicas behind one address."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, StrictBool

from vlm_api.base import ApiModel, Matches, Partial, Quantity, Rule, between
from vlm_api.engine import Engine
from vlm_api.hardware import Hardware, Multinode, Parallelism
from vlm_api.model import ModelSpec
from vlm_api.names import RESERVED_POOLS
from vlm_api.scaling import RolloutStrategy, Scaling
from vlm_api.template import PodTemplate

MAX_POOLS: Final = 8


class PoolSpec(ApiModel):
    """A group of equal replicas. What a pool does not set, it takes from the service."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.scaling) || !has(self.replicas)",
            message="replicas and scaling are mutually exclusive: remove one of them",
            holds=lambda s: s.scaling is None or s.replicas is None,
            field="replicas",
        ),
        Rule(
            cel=f"!(self.name in {list(RESERVED_POOLS)})",
            message=f"{', '.join(RESERVED_POOLS)} are names of the operator's own objects: choose another name",
            holds=lambda s: s.name not in RESERVED_POOLS,
            field="name",
        ),
    )

    name: Annotated[
        str,
        Field(min_length=1, max_length=12),
        Matches(
            r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
            "must be a DNS label of at most 12 characters: lower-case letters, digits and '-', starting with a letter",
        ),
    ]
    """The pool's name, which its objects bear. A renamed pool is a new one."""
    role: Literal["Serve"] | None = None
    """``Serve``: its pods answer requests."""
    replicas: Annotated[int, between(0, 1000)] | None = None
    """Number of replicas. If unset, 1. Mutually exclusive with ``scaling``."""
    scaling: Scaling | None = None
    """Autoscaling instead of a fixed number of ``replicas``."""
    weight: Annotated[int, between(0, 1000)] | None = None
    """The pool's share of the requests, relative to the other pools'. If unset, shares follow the capacity of the replicas."""
    concurrency: Annotated[int, between(1, 65_536)] | None = None
    """Requests in flight per replica, instead of ``workload.concurrency``."""
    model: Partial[ModelSpec] | None = None
    """The model, field by field."""
    parallelism: Partial[Parallelism] | None = None
    """How one replica is split over GPUs, field by field."""
    multinode: Partial[Multinode] | None = None
    """How many nodes one replica spans."""
    hardware: Partial[Hardware] | None = None
    """Hardware requirements, field by field."""
    engine: Partial[Engine] | None = None
    """The engine, field by field; of ``settings`` each name by itself."""
    shared_memory_size: Quantity | None = None
    """Size of /dev/shm."""
    rollout_strategy: RolloutStrategy | None = None
    """How a rollout replaces pods, as a whole."""
    template: PodTemplate | None = None
    """A core/v1 PodTemplateSpec, strategically merged over the service's."""
    suspend: StrictBool | None = None
    """If true, the pool has no pods."""
