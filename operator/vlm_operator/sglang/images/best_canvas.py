"""DeepSeek-VL2's way: tiles on the size that wastes least, and the whole; no tiles for more images than a limit."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import Cutting, Image, Side, square
from vlm_operator.sglang.images.grids import least_wasted


class BestCanvas(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "best_canvas"
    what: ClassVar = "the whole, and tiles for a few images"

    tile: Side
    grids: Annotated[list[tuple[int, int]], Field(min_length=1, max_length=256)]
    """(columns, rows) of the sizes that it may have, in the order of the checkpoint's candidate_resolutions."""
    tokens_per_side: Annotated[int, Field(ge=1, le=1024)]
    """Of one tile; each row of tokens ends with one more."""
    tiled_images: Annotated[int, Field(ge=0, le=1024)]
    """In a request with more images, each has one tile."""

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """The whole, a separator, and the tiles; all of its tokens are the encoder's."""
        columns = rows = 1
        if images <= self.tiled_images:
            size = least_wasted(width, height, [(c * self.tile, r * self.tile) for c, r in self.grids])
            columns, rows = size[0] // self.tile, size[1] // self.tile
        side = self.tokens_per_side
        tokens = side * (side + 1) + 1 + rows * side * (columns * side + 1)
        return Image((1 + columns * rows) * square(self.tile) * self.bytes_per_value, tokens, around=self.around)
