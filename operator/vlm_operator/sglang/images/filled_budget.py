"""Gemma 4's way: every image fills a budget of patches in its own proportions, small ones too."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count, Cutting, Image, Side


class FilledBudget(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "filled_budget"
    what: ClassVar = "grown or shrunk to fill a number of tokens"

    patch_size: Side
    pool: Annotated[int, Field(ge=1, le=64)]
    """Patches along one side that become one token."""
    max_tokens: Count

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """The largest size in these proportions whose sides are multiples; the tensor is padded to the whole budget."""
        step, most = self.patch_size * self.pool, self.max_tokens * self.pool**2
        scale = math.sqrt(most * self.patch_size**2 / (width * height))
        w, h = (math.floor(scale * side / step) for side in (width, height))
        if not (w or h):
            raise ValueError(f"{width} x {height} pixels become less than one token")
        if h == 0:
            w, h = min(width // height, self.max_tokens), 1
        elif w == 0:
            w, h = 1, min(height // width, self.max_tokens)
        size = most * CHANNELS * self.patch_size**2 * self.bytes_per_value
        return Image(size, w * h, around=self.around, size=(w * step, h * step))

    def enforcing(self, image: Image) -> dict[str, Any] | None:
        """None: the budget takes a few fixed values, and every image fills it."""
        return None
