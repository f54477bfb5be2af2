"""Every image becomes the same: Gemma 3 and 3n, Janus, Llama 3.2 Vision."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import Count, Cutting, Image, Side, square


class Fixed(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "fixed"
    what: ClassVar = "the same for every image"

    side: Side
    tokens: Count
    tiles: Annotated[int, Field(ge=1, le=64)] = 1
    """Tiles that are sent for every image, also when it fills only some of them."""
    marks_per_tile: Annotated[int, Field(ge=0, le=2**16)] = 0
    """Positions in front of the prompt for each tile, in models whose vision encoder is attended to from beside the text."""

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """The same for every image."""
        size = self.tiles * square(self.side) * self.bytes_per_value
        return Image(size, self.tokens, self.tiles * self.marks_per_tile, self.around)
