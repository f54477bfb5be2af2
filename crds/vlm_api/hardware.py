"""What the model runs on: ``spec.hardware``, ``spec.parallelism`` and ``spec.multinode``."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field

from vlm_api.base import ApiModel, Matches, Name, Token, UniqueBy, between


class Parallelism(ApiModel):
    """How one copy of the model is spread over GPUs."""

    tensor: Annotated[int, between(1, 1024)] = 1
    """Tensor parallelism: every layer split over this many GPUs."""
    pipeline: Annotated[int, between(1, 1024)] = 1
    """Pipeline parallelism: the layers split into this many stages."""
    data: Annotated[int, between(1, 1024)] = 1
    """Data parallelism: this many engine replicas inside one pod. One node only."""


class Multinode(ApiModel):
    """Serving with one copy of the model over several nodes."""

    node_count: Annotated[int, between(1, 256)] = 1
    """Nodes per replica. More than one needs the LeaderWorkerSet controller in the cluster."""


class Device(str, Enum):
    """What computes."""

    CUDA = "cuda"
    CPU = "cpu"


class Hardware(ApiModel):
    """Wishes about the hardware. Without them the cluster's nodes decide."""

    device: Device = Device.CUDA
    """``cuda``, or ``cpu`` for trying things out without a GPU (slow)."""
    compute_capability: (
        Annotated[
            str,
            Field(max_length=8),
            Matches(r"^[1-9][0-9]{0,2}\.[0-9]{1,2}$", 'must be two numbers with a dot, in quotes, such as "9.0"'),
        ]
        | None
    ) = None
    """Only GPUs of this compute capability, such as ``"9.0"``. Those of which no label tells are taken to have it."""
    min_memory_mib: Annotated[int, between(1, 16_777_216)] | None = None
    """Only GPUs with at least this much memory each, in MiB. Those of which no label tells are taken to have so much."""
    products: Annotated[list[Token], Field(max_length=32), UniqueBy()] = []
    """Only these products, as GPU feature discovery names them (label ``nvidia.com/gpu.product``)."""
    resource_name: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Matches(
            r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
            "must be an extended resource with its domain, such as nvidia.com/gpu",
        ),
    ] = "nvidia.com/gpu"
    """The extended resource that the pods ask for."""
    runtime_class_name: Name | None = None
    """A RuntimeClass, where GPUs need one that is not the cluster's default."""
