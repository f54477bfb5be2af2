"""Tiles of one size and a thumbnail of the whole: InternVL, Nemotron Nano VL, Command A Vision."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vlm_operator.sglang.images import Count, Cutting, Image, Side, share, square
from vlm_operator.sglang.images.grids import closest_by_area, closest_largest, least_scaled


class Tiles(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "tiles"
    what: ClassVar = "tiles of one size, and a thumbnail if there are several"

    tile: Side
    max_tiles: Annotated[int, Field(ge=1, le=64)]
    tokens_per_tile: Count
    grid: Literal["closest_largest", "closest_by_area", "least_scaled"]
    """How the grid of tiles is chosen: see ``grids.py``."""
    crop: bool = True
    """False: one tile for every image."""
    marks_per_tile: Annotated[int, Field(ge=0, le=8)] = 0
    placeholders_stay: bool = False
    """The engine puts all images where the first stands, and leaves the placeholders of the others as they are."""

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Tiles in a grid that is chosen by the image's ratio of sides."""
        columns, rows = self._grid(width, height) if self.crop else (1, 1)
        views = columns * rows + (columns * rows > 1)
        return Image(
            views * square(self.tile) * self.bytes_per_value,
            views * self.tokens_per_tile,
            views * self.marks_per_tile + (share(images - 1, images) if self.placeholders_stay else 0),
            self.around,
        )

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        if self.grid == "closest_largest":
            return closest_largest(width, height, self.max_tiles)
        if self.grid == "closest_by_area":
            return closest_by_area(width, height, 1, self.max_tiles, self.tile)
        return least_scaled(width, height, self.max_tiles, self.tile)
