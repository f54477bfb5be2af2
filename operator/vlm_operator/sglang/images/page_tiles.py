"""DeepSeek-OCR's way: the whole page at one size, and tiles under another name if it is larger than a tile."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import Cutting, Image, Side, share, square
from vlm_operator.sglang.images.grids import closest_by_area


class PageTiles(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "page_tiles"
    what: ClassVar = "the whole, and tiles under another name if it is large"

    whole: Side
    tile: Side
    min_tiles: Annotated[int, Field(ge=1, le=64)]
    max_tiles: Annotated[int, Field(ge=1, le=64)]
    pixels_per_token: Side
    """Along one side."""
    row_ends: bool
    """Whether each row of tokens ends with one more."""
    tiled_images: Annotated[int, Field(ge=1, le=1024)]
    """In a request with more images, none has tiles, or the request is refused."""
    refuses_more: bool = False

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """A request without tiles carries one of zeros."""
        if images > self.tiled_images and self.refuses_more:
            raise ValueError(f"{images} images in a request are more than {self.tiled_images}")
        base, side = self.whole // self.pixels_per_token, self.tile // self.pixels_per_token
        end = 1 if self.row_ends else 0
        tokens, tiles = base * (base + end) + 1, 0
        if images <= self.tiled_images and max(width, height) > self.tile:
            columns, rows = closest_by_area(width, height, self.min_tiles, self.max_tiles, self.tile)
            tiles = columns * rows
            tokens += (side * columns + end) * side * rows
        extra = share(max(tiles * images, 1) * square(self.tile) * self.bytes_per_value, images)
        return Image(square(self.whole) * self.bytes_per_value, tokens, around=self.around, extra_bytes=extra)
