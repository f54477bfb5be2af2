"""What the traffic is like: ``spec.workload``, which sizes everything."""

from __future__ import annotations

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
            message="width and height go together: give both or neither",
            holds=lambda s: (s.width is None) == (s.height is None),
            field="width",
        ),
    )

    per_request: Annotated[int, between(1, 256)] = 1
    """Images in one request."""
    width: Annotated[int, between(1, 65_536)] | None = None
    """Width in pixels, before the model's own resizing."""
    height: Annotated[int, between(1, 65_536)] | None = None
    """Height in pixels, before the model's own resizing."""
    reuse: Reuse = Reuse.UNKNOWN
    """``SingleUse``: each image is seen once. ``Repeated``: the same image comes back, so caches pay. ``Unknown`` is
    planned like ``SingleUse``, as the engine itself assumes."""
    enforce: StrictBool = False
    """True: the engine refuses requests with more or larger images than declared here."""


class Workload(ApiModel):
    """What the traffic is like. This is what sizes everything."""

    concurrency: Annotated[int, between(1, 65_536)] | None = None
    """Requests in flight per replica. Unset: left to the engine."""
    input_tokens: Annotated[int, between(1, 16_777_216)] | None = None
    """Text tokens in a typical prompt, without the images. Unset: 1,024 in the memory sum."""
    output_tokens: Annotated[int, between(1, 16_777_216)] | None = None
    """Tokens in a typical answer. Unset: 256 in the memory sum."""
    max_request_seconds: Annotated[int, between(1, 86_400)] = 300
    """The longest a request may run, in seconds. A pod that is told to stop waits this long for its last answer."""
    images: Images = Images()
    """The images of a typical request."""
