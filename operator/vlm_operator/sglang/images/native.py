"""Kimi's way: the image at its own size, padded to whole tokens, and shrunk only above a number of patches."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count, Cutting, Image, Side


class Native(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "native"
    what: ClassVar = "its own size, padded, up to a number of patches"

    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]
    max_patches: Count
    max_side_patches: Count
    long_sides: Literal["refused", "shrunk"]
    """What happens to an image with more than ``max_side_patches`` along one side."""

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Shrunk in proportion where needed, then padded."""
        patch, factor = self.patch_size, self.patch_size * self.merge_size
        patches, longest = max(1, width // patch) * max(1, height // patch), self.max_side_patches * patch
        scales = [math.sqrt(self.max_patches / patches)]
        if self.long_sides == "shrunk":
            scales += [longest / width, longest / height]
        if (scale := min(scales)) < 1:
            width, height = max(1, int(width * scale)), max(1, int(height * scale))
        if self.long_sides == "shrunk":
            width, height = min(width, longest), min(height, longest)
        w, h = -(-width // factor) * factor, -(-height // factor) * factor
        if self.long_sides == "refused" and max(w, h) >= longest:
            raise ValueError(f"a side of {max(w, h)} pixels is more than its {self.max_side_patches} positions")
        tokens = (w // factor) * (h // factor)
        return Image(CHANNELS * w * h * self.bytes_per_value, tokens, around=self.around, size=(w, h))
