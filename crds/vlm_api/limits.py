"""What one request may bring: the one source for everybody who checks requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vlm_api.base import ApiModel
from vlm_api.workload import Workload

MIB: Final = 1 << 20
# So much more than declared is still served.
SLACK: Final = 4
# A declared pixel in a body: three bytes of colour, as base64.
BYTES_PER_PIXEL: Final = 4
# And one of a video's frames: one bit, as base64. H.264 at usual rates takes a tenth of it.
BYTES_PER_FRAME_PIXEL: Final = 1 / 6


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
    videos: int = 8
    """Videos in the request."""


def request_limits(declared: Workload, engines: Mapping[str, int] | None = None) -> RequestLimits:
    """Four times what is declared and never below the defaults; what is declared if it is to be enforced.

    ``engines``: the user's own limits of ``image`` and ``video`` in the engine's settings, which count as declared.
    """
    usual, engines = RequestLimits(), engines or {}
    each, clips = declared.images, declared.videos
    images, videos = each.per_request, 0 if clips is None else clips.per_request
    pixels = None if each.width is None or each.height is None else each.width * each.height
    frames = 0 if clips is None else clips.seconds * clips.frames_per_second * clips.width * clips.height
    carried = images * (pixels or 0) * BYTES_PER_PIXEL + int(videos * frames * BYTES_PER_FRAME_PIXEL)
    body = max(usual.body_bytes, SLACK * carried)
    if each.enforce:
        return RequestLimits(
            body_bytes=body,
            images=images,
            image_pixels=usual.image_pixels if pixels is None else pixels,
            request_pixels=usual.request_pixels if pixels is None else pixels * images,
            videos=videos,
        )
    return RequestLimits(
        body_bytes=body,
        images=max(usual.images, SLACK * images, engines.get("image", 0)),
        image_pixels=max(usual.image_pixels, SLACK * (pixels or 0)),
        request_pixels=max(usual.request_pixels, SLACK * images * (pixels or 0)),
        videos=max(usual.videos, SLACK * videos, engines.get("video", 0)),
    )
