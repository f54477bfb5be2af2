"""LLaVA's way: tiles on the best of some sizes without its padding, and the whole; several images are one tile each."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Final

from pydantic import Field

from vlm_operator.sglang.images import Cutting, Image, Side, square
from vlm_operator.sglang.images.grids import least_wasted

# With more images, each is pooled to a quarter (models/llava.py, pad_input_ids).
POOLED_ABOVE: Final = 16
SHRUNK_ABOVE: Final = 1.1


class AnyResolution(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "any_resolution"
    what: ClassVar = "the whole, and tiles without padding if the request has one image"

    tile: Side
    patch_size: Side
    grids: Annotated[list[tuple[int, int]], Field(max_length=256)]
    """(columns, rows) of the sizes that it may have, in the order of image_grid_pinpoints; none: never tiles."""
    max_tiles: Annotated[int, Field(ge=1, le=256)] | None = None
    """Tiles whose tokens the unpadded image may have; above, it is shrunk (anyres_max)."""

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """The whole, and for a single image the tiles' tokens without padding, with one more after each row."""
        side = self.tile // self.patch_size
        one, tokens = square(self.tile) * self.bytes_per_value, side * side
        if images > POOLED_ABOVE:
            return Image(one, math.ceil(self.tile / self.patch_size / 2) ** 2, around=self.around)
        if images > 1 or not self.grids:
            # As they are padded to a square, they are sent as one tile each.
            return Image(one, tokens, around=self.around)
        best = least_wasted(width, height, [(c * self.tile, r * self.tile) for c, r in self.grids])
        columns, rows = best[0] // self.tile, best[1] // self.tile
        h, w = _unpadded(rows * side, columns * side, width, height)
        if self.max_tiles:
            times = math.sqrt(h * w / (self.max_tiles * tokens))
            if times > SHRUNK_ABOVE:
                h, w = int(h // times), int(w // times)
        return Image((1 + columns * rows) * one, tokens + h * (w + 1), around=self.around)


def _unpadded(rows: int, columns: int, width: int, height: int) -> tuple[int, int]:
    """Rows and columns of tokens that are not all padding."""
    if width / height > columns / rows:
        padding = (rows - int(height * (columns / width))) // 2
        return rows - 2 * padding, columns
    padding = (columns - int(width * (rows / height))) // 2
    return rows, columns - 2 * padding
