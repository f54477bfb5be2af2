"""SGLang's own way for MiniMax M3: the longest side within a limit, short sides grown, whatever the files say."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Cutting, Image, Pixels, Side
from vlm_operator.sglang.images.smart_resize import MAX_ASPECT_RATIO


class LongestSide(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "longest_side"
    what: ClassVar = "the longest side within a limit, short sides grown"

    longest_side: Side
    shortest_side: Side
    max_pixels: Pixels
    """Larger images are refused."""
    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]
    temporal_patch_size: Annotated[int, Field(ge=1, le=64)]

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Both sides go to the nearest multiple of the factor."""
        if max(width, height) / min(width, height) > MAX_ASPECT_RATIO:
            raise ValueError(f"the sides {width} x {height} differ by more than {MAX_ASPECT_RATIO} times")
        factor = self.patch_size * self.merge_size
        most = self.longest_side // factor * factor
        beta = 1.0
        if max(width, height) > most:
            beta = most / max(width, height)
        elif min(width, height) < self.shortest_side:
            beta = min(self.shortest_side / min(width, height), most / max(width, height))
        w, h = (max(factor, round(side * beta / factor) * factor) for side in (width, height))
        if w * h > self.max_pixels:
            raise ValueError(f"{w * h:,} pixels are more than {self.max_pixels:,}")
        values = CHANNELS * self.temporal_patch_size * w * h
        return Image(values * self.bytes_per_value, (w // factor) * (h // factor), around=self.around, size=(w, h))
