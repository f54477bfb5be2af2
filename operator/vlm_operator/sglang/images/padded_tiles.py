"""Phi-4-multimodal's way: tiles of one size on a padded canvas, and the whole; tokens of the padding are left out."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import Cutting, Image, Side, square
from vlm_operator.sglang.images.grids import closest_by_area


class PaddedTiles(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "padded_tiles"
    what: ClassVar = "the whole, and tiles without the tokens of padding"

    tile: Side
    max_tiles: Annotated[int, Field(ge=1, le=256)]
    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """The whole with a token after each row and one after it, then the canvas with a token after each row."""
        tile = self.tile
        columns, rows = math.ceil(width / tile), math.ceil(height / tile)
        if columns * rows > self.max_tiles:
            columns, rows = closest_by_area(width, height, 1, self.max_tiles, tile)
        w, h = columns * tile, rows * tile
        if w / width < h / height:
            new_w, new_h = w, int(height * (w / width))
        else:
            new_w, new_h = int(width * (h / height)), h
        if min(new_w, new_h) < 10:
            raise ValueError(f"{width} x {height} pixels would become {new_w} x {new_h}")
        side = tile // self.patch_size // self.merge_size
        across, down = self._tokens(w, w - new_w), self._tokens(h, h - new_h)
        tokens = side * side + side + 1 + across * down + (down if across else 0)
        return Image((1 + columns * rows) * square(tile) * self.bytes_per_value, tokens, around=self.around)

    def _tokens(self, length: int, padding: int) -> int:
        """Along one side: one for each ``merge_size`` patches that are not all padding."""
        patches = max(length // self.patch_size - padding // self.patch_size, 0)
        return math.ceil(patches / self.merge_size)
