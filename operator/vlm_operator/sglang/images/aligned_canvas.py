"""GLM-5.3's way: a canvas of whole tokens around the image, between two numbers of tokens."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count, Cutting, Image, Side


class AlignedCanvas(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "aligned_canvas"
    what: ClassVar = "a canvas of whole tokens, between two numbers of them"

    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]
    temporal_patch_size: Annotated[int, Field(ge=1, le=64)]
    min_tokens: Count
    max_tokens: Count

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Sides rounded up to whole tokens; a canvas that is too large holds the highest image that fits."""
        factor = self.patch_size * self.merge_size
        w, h = canvas(width, height, factor, self.min_tokens, self.max_tokens)
        values = CHANNELS * self.temporal_patch_size * w * h * factor**2
        return Image(values * self.bytes_per_value, w * h, around=self.around, size=(w * factor, h * factor))

    def enforcing(self, image: Image) -> dict[str, Any] | None:
        """Scales larger images down to the tokens of ``image``."""
        return {"image": {"max_image_tokens": image.tokens}}


def canvas(width: int, height: int, factor: int, min_tokens: float, max_tokens: float) -> tuple[int, int]:
    """Both sides in tokens of ``factor`` pixels."""
    w, h = -(-width // factor), -(-height // factor)
    if w * h < min_tokens:
        scale = math.sqrt(min_tokens * factor**2 / (height * width))
        w, h = (math.ceil(max(1, math.ceil(side * scale)) / factor) for side in (width, height))
    return _within(width, height, factor, max_tokens) if w * h > max_tokens else (w, h)


def _within(width: int, height: int, factor: int, max_tokens: float) -> tuple[int, int]:
    low, high, best = 1, height, (1, 1)
    while low <= high:
        middle = (low + high) // 2
        h, w = -(-middle // factor), -(-max(1, math.floor(width * middle / height)) // factor)
        if w * h <= max_tokens:
            best, low = (w, h), middle + 1
        else:
            high = middle - 1
    return best
