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
        w, h = -(-width // factor), -(-height // factor)
        if w * h < self.min_tokens:
            scale = math.sqrt(self.min_tokens * factor**2 / (height * width))
            w, h = (math.ceil(max(1, math.ceil(side * scale)) / factor) for side in (width, height))
        if w * h > self.max_tokens:
            w, h = self._within(width, height, factor)
        values = CHANNELS * self.temporal_patch_size * w * h * factor**2
        return Image(values * self.bytes_per_value, w * h, around=self.around, size=(w * factor, h * factor))

    def _within(self, width: int, height: int, factor: int) -> tuple[int, int]:
        low, high, best = 1, height, (1, 1)
        while low <= high:
            middle = (low + high) // 2
            h, w = -(-middle // factor), -(-max(1, math.floor(width * middle / height)) // factor)
            if w * h <= self.max_tokens:
                best, low = (w, h), middle + 1
            else:
                high = middle - 1
        return best

    def enforcing(self, image: Image) -> dict[str, Any] | None:
        """Scales larger images down to the tokens of ``image``."""
        return {"image": {"max_image_tokens": image.tokens}}
