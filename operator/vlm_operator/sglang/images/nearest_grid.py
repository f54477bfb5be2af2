"""Muse's way: the grid of tokens that is nearest to the image's proportions, within a number of tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count, Cutting, Image, Side


class NearestGrid(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "nearest_grid"
    what: ClassVar = "the nearest grid of tokens, up to a number of them"

    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]
    frames: Annotated[int, Field(ge=1, le=64)] = 1
    """Frames per patch that are sent."""
    max_tokens: Count
    otherwise: str = Field(default="rounded", pattern="^(rounded|nearest)$")
    """What is taken where no neighbour of the ideal grid is within the limit: the ideal one, rounded, or the nearest that is."""

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Of the grids around the ideal one the best in proportion; images shrink, and never grow but for the rounding."""
        factor = self.patch_size * self.merge_size
        columns, rows = width / factor, height / factor
        if columns * rows > self.max_tokens:
            ratio = columns / rows
            rows = math.sqrt(self.max_tokens / ratio)
            columns = rows * ratio
        # A set, as in the processor: of two that are equally good, its order decides.
        around = set(itertools.product(_around(rows), _around(columns)))
        near = [(h, w) for h, w in around if h and w and h * w <= self.max_tokens]
        if near:
            h, w = min(near, key=lambda grid: abs(grid[0] / grid[1] - height / width))
        elif self.otherwise == "rounded":
            h, w = max(1, round(rows)), max(1, round(columns))
        else:
            h, w = self._nearest(rows, columns)
        values = CHANNELS * self.frames * h * w * factor**2
        return Image(values * self.bytes_per_value, h * w, around=self.around, size=(w * factor, h * factor))

    def _nearest(self, rows: float, columns: float) -> tuple[int, int]:
        def grids() -> Iterator[tuple[float, int, int]]:
            for h in range(1, self.max_tokens + 1):
                w = min(max(round(columns), 1), self.max_tokens // h)
                yield (h - rows) ** 2 + (w - columns) ** 2, h, w

        _, h, w = min(grids(), key=lambda each: each[0])
        return h, w


def _around(ideal: float) -> tuple[int, int]:
    return math.floor(ideal), math.ceil(ideal)
