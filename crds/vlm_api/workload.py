"""``spec.workload``: the expected traffic, which all sizes are computed from."""

from enum import Enum
from typing import Annotated, ClassVar

from pydantic import StrictBool

from vlm_api.base import ApiModel, Rule, between


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
            message="width and height must be set together: set both or neither",
            holds=lambda s: (s.width is None) == (s.height is None),
            field="width",
        ),
    )

    per_request: Annotated[int, between(1, 256)] = 1
    """Images in one request."""
    width: Annotated[int, between(1, 65_536)] | None = None
    """Width in pixels, before the model resizes it."""
    height: Annotated[int, between(1, 65_536)] | None = None
    """Height in pixels, before the model resizes it."""
    reuse: Reuse = Reuse.UNKNOWN
    """``SingleUse``: each image is sent once. ``Repeated``: the same images are sent again, so caches help. ``Unknown`` is
    planned like ``SingleUse``, as the engine assumes."""
    enforce: StrictBool = False
    """If true, the engine rejects requests with more or larger images, or with more videos, than ``spec.workload`` declares."""


class Videos(ApiModel):
    """The videos of a typical request."""

    per_request: Annotated[int, between(1, 64)] = 1
    """Videos in one request."""
    seconds: Annotated[int, between(1, 86_400)]
    """Length of a video, in seconds."""
    frames_per_second: Annotated[int, between(1, 240)] = 30
    """Frames per second in the file, of which the engine takes some."""
    width: Annotated[int, between(1, 65_536)]
    """Width in pixels, before the engine resizes it."""
    height: Annotated[int, between(1, 65_536)]
    """Height in pixels, before the engine resizes it."""


class Workload(ApiModel):
    """The expected traffic. All sizes are computed from it."""

    concurrency: Annotated[int, between(1, 65_536)] | None = None
    """Requests in flight per replica. If unset, the engine decides."""
    input_tokens: Annotated[int, between(1, 16_777_216)] | None = None
    """Text tokens in a typical prompt, without images. If unset, the memory estimate uses 1,024."""
    output_tokens: Annotated[int, between(1, 16_777_216)] | None = None
    """Tokens in a typical response. If unset, the memory estimate uses 256."""
    max_request_seconds: Annotated[int, between(1, 86_400)] = 300
    """Maximum duration of a request, in seconds. A terminating pod waits this long for running requests."""
    images: Images = Images()
    """The images of a typical request."""
    videos: Videos | None = None
    """The videos of a typical request. If unset, none are expected."""
