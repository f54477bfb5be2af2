"""What one request may bring: the one source for everybody who checks requests."""

from __future__ import annotations

from typing import Final

from vlm_api.base import ApiModel
from vlm_api.workload import Images

MIB: Final = 1 << 20
# So much more than declared is still served.
SLACK: Final = 4
# A declared pixel in a body: three bytes of colour, as base64.
BYTES_PER_PIXEL: Final = 4


class RequestLimits(ApiModel):
    """The largest request that is accepted. The defaults hold for whatever is declared, unless it is to be enforced."""

    body_bytes: int = 64 * MIB
    """Bytes of the request's body."""
    images: int = 32
    """Images in the request."""
    image_pixels: int = 100_000_000
    """Pixels of one image."""
    request_pixels: int = 400_000_000
    """Pixels of all images in the request."""


def request_limits(declared: Images, engines_images: int | None = None) -> RequestLimits:
    """Four times what is declared and never below the defaults; what is declared if it is to be enforced.

    ``engines_images``: the user's own limit in the engine's settings, which counts as declared.
    """
    usual = RequestLimits()
    images = declared.per_request
    pixels = None if declared.width is None or declared.height is None else declared.width * declared.height
    body = max(usual.body_bytes, SLACK * images * (pixels or 0) * BYTES_PER_PIXEL)
    if declared.enforce:
        return RequestLimits(
            body_bytes=body,
            images=images,
            image_pixels=usual.image_pixels if pixels is None else pixels,
            request_pixels=usual.request_pixels if pixels is None else pixels * images,
        )
    return RequestLimits(
        body_bytes=body,
        images=max(usual.images, SLACK * images, engines_images or 0),
        image_pixels=max(usual.image_pixels, SLACK * (pixels or 0)),
        request_pixels=max(usual.request_pixels, SLACK * images * (pixels or 0)),
    )
