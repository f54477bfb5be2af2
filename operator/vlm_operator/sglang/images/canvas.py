"""Llama 4's way: the canvas of tiles that suits the image best, with separators, and the whole in one tile more."""

from __future__ import annotations

import struct
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import Count, Cutting, Image, Side, square
from vlm_operator.sglang.images.grids import grids


class Canvas(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "canvas"
    what: ClassVar = "tiles with separators, and the whole if there are several"

    tile: Side
    max_tiles: Annotated[int, Field(ge=1, le=64)]
    tokens_per_tile: Count

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """The canvas that enlarges the image least, or else shrinks it least, and of those the smallest."""
        fits = [(self._scale(width, height, grid), grid) for grid in grids(1, self.max_tiles)]
        enlarging = [scale for scale, _ in fits if scale >= 1]
        chosen = min(enlarging) if enlarging else max(scale for scale, _ in fits)
        columns, rows = next(grid for scale, grid in fits if scale == chosen)
        tiles = columns * rows
        views = tiles + 1 if tiles > 1 else 1
        return Image(
            views * square(self.tile) * self.bytes_per_value,
            views * self.tokens_per_tile,
            tiles if tiles > 1 else 0,  # one separator after each tile
            self.around,
        )

    def _scale(self, width: int, height: int, grid: tuple[int, int]) -> float:
        # Scales that differ in float64 may be equal in the float32 of the processor.
        scale = min(grid[0] * self.tile / width, grid[1] * self.tile / height)
        return float(struct.unpack("f", struct.pack("f", scale))[0])

    def enforcing(self, image: Image) -> dict[str, Any] | None:
        """Scales larger images down to the tiles of ``image``."""
        return {"image": {"max_patches": max(1, image.tokens // self.tokens_per_tile - 1)}}
