"""Pixtral's way: the longest edge within a limit, both sides up to multiples of a step, one token per patch and one per row."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Cutting, Image, Side


class LongestEdge(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "longest_edge"
    what: ClassVar = "the longest edge within a limit, a mark after each row"

    longest_edge: Side
    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]
    step: Side
    """Both sides are rounded up to a multiple of it."""
    row_marks: bool = True
    limits: dict[str, str] = {"size.longest_edge": "longest_edge"}  # noqa: RUF012 - pydantic copies it

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """The image shrinks in proportion, and never grows but for the rounding."""
        ratio = max(width, height) / self.longest_edge
        if ratio > 1:
            width, height = int(width / ratio), int(height / ratio)
        w, h = -(-width // self.step) * self.step, -(-height // self.step) * self.step
        if not (w and h):
            raise ValueError(f"a side has no pixels left when the other is {self.longest_edge}")
        pixels = self.patch_size * self.merge_size
        columns, rows = w // pixels, h // pixels
        marks = rows if self.row_marks else 0
        return Image(CHANNELS * w * h * self.bytes_per_value, columns * rows, marks, self.around, size=(w, h))

    def enforcing(self, image: Image) -> dict[str, Any] | None:
        """Scales larger images down to the longest edge of ``image``."""
        return None if image.size is None else {"image": {"size": {"longest_edge": max(image.size)}}}
