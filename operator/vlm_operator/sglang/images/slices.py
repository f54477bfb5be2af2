"""MiniCPM-V's way: the whole, and slices of a grid if it is larger than one."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count, Cutting, Image, Side, share


class Slices(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "slices"
    what: ClassVar = "the whole, and slices if it is large, each with its marks"

    side: Side
    """A view has about the area of this square."""
    max_slices: Annotated[int, Field(ge=1, le=64)]
    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Patches along one side that become one token."""
    tokens_per_view: Count | None = None
    """Where every view has as many, whatever its size."""

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Views with start and end, a line break between rows of slices, and the image's number with start and end."""
        grid = self._grid(width, height)
        views = [(self._sized(width, height, grow=grid is None), 1)]
        breaks = 0
        if grid is not None:
            rows, columns = grid
            breaks = rows - 1
            views.append((self._sized(*self._slice(width, height, grid), grow=True), rows * columns))
        pixels = sum(w * h * count for (w, h), count in views)
        tokens = sum(self._tokens(w, h) * count for (w, h), count in views)
        numbers = share(sum(2 + len(str(i)) for i in range(images)), images)
        marks = 2 * sum(count for _, count in views) + breaks + numbers
        return Image(CHANNELS * pixels * self.bytes_per_value, tokens, marks, self.around)

    @property
    def _step(self) -> int:
        return self.patch_size * self.merge_size

    def _tokens(self, width: int, height: int) -> int:
        return self.tokens_per_view or (width // self._step) * (height // self._step)

    def _sized(self, width: int, height: int, *, grow: bool) -> tuple[int, int]:
        if width * height > self.side**2 or grow:
            ratio = width / height
            height = int(self.side / math.sqrt(ratio))
            width = int(height * ratio)
        return _near(width, self._step), _near(height, self._step)

    def _slice(self, width: int, height: int, grid: tuple[int, int]) -> tuple[int, int]:
        rows, columns = grid
        if self.tokens_per_view:
            return max(round(width / columns), 1), max(round(height / rows), 1)
        return _near(width, columns) // columns, _near(height, rows) // rows

    def _grid(self, width: int, height: int) -> tuple[int, int] | None:
        """(rows, columns) of the slices; None for an image that stays whole."""
        wanted = min(math.ceil(width * height / self.side**2), self.max_slices)
        if wanted <= 1:
            return None
        ratio, least, best = math.log(width / height), float("inf"), (1, 1)
        for slices in (wanted - 1, wanted, wanted + 1):
            if slices == 1 or slices > self.max_slices:
                continue
            for columns in (n for n in range(1, slices + 1) if slices % n == 0):
                rows = slices // columns
                off = abs(ratio - math.log(columns / rows))
                if off < least:
                    least, best = off, (rows, columns)
        return best


def _near(length: int, step: int) -> int:
    return max(round(length / step) * step, step)
