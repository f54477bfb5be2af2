"""``spec.router``: an Envoy before the engines of all pools."""

from enum import Enum
from typing import Annotated

from pydantic import Field

from vlm_api.base import IMAGE, ApiModel, Matches, between
from vlm_api.template import PodTemplate


class Affinity(str, Enum):
    """Whether requests about the same image meet the same engine."""

    AUTO = "Auto"
    IMAGE = "Image"
    NONE = "None"


class Router(ApiModel):
    """An Envoy before the engines of all pools. Without it, clients reach the engines directly."""

    replicas: Annotated[int, between(1, 100)] = 2
    """Number of routers."""
    affinity: Affinity = Affinity.AUTO
    """``Image``: requests about the same image meet the same engine, which has it in its cache. ``None``: each request goes to
    the engine with the least to do. ``Auto``: ``Image`` if ``workload.images.reuse`` is ``Repeated``, else ``None``."""
    load_factor_percent: Annotated[int, between(100, 1000)] = 125
    """With affinity: the load of an engine, in percent of the mean, above which an image goes to another engine."""
    image: (
        Annotated[
            str,
            Field(min_length=1, max_length=512),
            Matches(
                f"^{IMAGE}$",
                "must be an image such as registry.example.com/envoy:v1.39.1, without spaces, scheme or user",
            ),
        ]
        | None
    ) = None
    """Envoy's image. Default: the official distroless image of the version that the operator is tested with."""
    template: PodTemplate = {}
    """A core/v1 PodTemplateSpec, strategically merged over the operator's. The router's container is ``router``."""
