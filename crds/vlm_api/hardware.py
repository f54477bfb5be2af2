"""``spec.hardware``, ``spec.parallelism`` and ``spec.multinode``."""

from enum import Enum
from typing import Annotated

from pydantic import Field

from vlm_api.base import ApiModel, Matches, Name, Token, UniqueBy, between


class Parallelism(ApiModel):
    """How one replica is split over GPUs."""

    tensor: Annotated[int, between(1, 1024)] = 1
    """Tensor parallelism: the number of GPUs that each layer is split over."""
    pipeline: Annotated[int, between(1, 1024)] = 1
    """Pipeline parallelism: the number of stages that the layers are split into."""
    data: Annotated[int, between(1, 1024)] = 1
    """Data parallelism: the number of engine instances in one pod. One node only."""


class Multinode(ApiModel):
    """Replicas that span several nodes."""

    node_count: Annotated[int, between(1, 256)] = 1
    """Nodes per replica. More than one requires the LeaderWorkerSet controller."""


class Device(str, Enum):
    """The kind of device."""

    CUDA = "cuda"
    CPU = "cpu"


class Hardware(ApiModel):
    """Hardware requirements. If unset, the operator chooses among the cluster's nodes."""

    device: Device = Device.CUDA
    """``cuda``, or ``cpu`` for tests without a GPU (slow)."""
    compute_capability: (
        Annotated[
            str,
            Field(max_length=8),
            Matches(
                r"^[1-9][0-9]{0,2}\.[0-9]{1,2}$", 'must be two numbers separated by a dot, in quotes, such as "9.0"'
            ),
        ]
        | None
    ) = None
    """Use only GPUs with this compute capability, such as ``"9.0"``. GPUs without a label are assumed to match."""
    min_memory_mib: Annotated[int, between(1, 16_777_216)] | None = None
    """Use only GPUs with at least this much memory, in MiB. GPUs without a label are assumed to match."""
    products: Annotated[list[Token], Field(max_length=32), UniqueBy()] = []
    """Use only these products, by their ``nvidia.com/gpu.product`` label from GPU feature discovery."""
    resource_name: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Matches(
            r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
            "must be an extended resource with its domain, such as nvidia.com/gpu",
        ),
    ] = "nvidia.com/gpu"
    """The extended resource that pods request."""
    runtime_class_name: Name | None = None
    """The RuntimeClass of the pods, if GPUs need another one than the cluster's default."""
