"""One image of its own size, or tiles with a smaller whole if it is large: LFM2-VL."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count, Cutting, Image, Side
from vlm_operator.sglang.images.grids import closest_by_area
from vlm_operator.sglang.images.smart_resize import SmartResize


class TilesOrWhole(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "tiles_or_whole"
    what: ClassVar = "the whole at its own size; large images in tiles too"

    tile: Side
    min_tiles: Annotated[int, Field(ge=2, le=64)]
    max_tiles: Annotated[int, Field(ge=2, le=64)]
    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]
    min_tokens: Count
    max_tokens: Count
    """Of the whole."""
    tolerance: Annotated[float, Field(ge=1, le=64)]
    """An image with so many times ``max_tokens`` is large."""
    split: bool = True

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """The whole as Qwen-VL resizes it; a large image gets tiles by its ratio of sides, each with a mark."""
        factor, slots = self.patch_size * self.merge_size, self.max_tokens * self.merge_size**2
        w, h = self._whole(factor).resized(width, height)
        tokens, tiles = (w // factor) * (h // factor), 0
        if self.split:
            slots = max(slots, (self.tile // self.patch_size) ** 2)
            if self._large(width, height, factor):
                columns, rows = closest_by_area(width, height, self.min_tiles, self.max_tiles, self.tile)
                tiles = columns * rows
        return Image(
            (tiles + 1) * slots * CHANNELS * self.patch_size**2 * self.bytes_per_value,
            tokens + tiles * (self.tile // factor) ** 2,
            tiles + 1 if tiles else 0,
            self.around,
        )

    def _large(self, width: int, height: int, factor: int) -> bool:
        w, h = (max(round(side / factor) * factor, self.patch_size) for side in (width, height))
        return w * h > self.max_tokens * factor**2 * self.tolerance

    def _whole(self, factor: int) -> SmartResize:
        return SmartResize(
            patch_size=self.patch_size,
            merge_size=self.merge_size,
            temporal_patch_size=1,
            min_pixels=self.min_tokens * factor**2,
            max_pixels=self.max_tokens * factor**2,
            small_sides="lifted",
            extreme_ratio="kept",
            evidence=self.evidence,
        )
