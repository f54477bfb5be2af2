"""Step-3's way: the whole at one size, and square windows over it at another, under another name."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import Count, Cutting, Image, Side, square


class Windows(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "windows"
    what: ClassVar = "the whole, and square windows under another name if it is large"

    whole: Side
    window: Side
    longest_side: Side
    tokens: Count
    """Of the whole."""
    tokens_per_window: Count
    marks_per_window: Annotated[int, Field(ge=0, le=8)] = 2

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Windows in a grid, each with its marks, and a mark between rows."""
        columns, rows = self._grid(width, height)
        windows = columns * rows
        return Image(
            square(self.whole) * self.bytes_per_value,
            self.tokens + windows * self.tokens_per_window,
            windows * self.marks_per_window + max(rows - 1, 0),
            self.around,
            windows * square(self.window) * self.bytes_per_value,
        )

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        if min(width, height) < 32 and (width / height > 4 or width / height < 1 / 4):
            width = height = max(width, height)  # padded to a square
        if max(width, height) > self.longest_side:
            scale = self.longest_side / max(width, height)
            width, height = int(width * scale), int(height * scale)
        long, short = max(width, height), min(width, height)
        if not short:
            raise ValueError(f"a side has no pixels left when the other is {self.longest_side}")
        if long <= self.whole:
            side = short if long / short > 1.5 else 0
        else:
            side = min(short, self.window) if long / short > 4 else self.window
        return (_count(width, side), _count(height, side)) if side else (0, 0)


def _count(length: int, side: int) -> int:
    """Windows along one side: resized to whole windows first, of which a fifth of one more counts."""
    if length < side:
        return 1
    whole = length // side
    return max(whole + 1 if length / side - whole > 0.2 else math.floor(length / side), 1)
