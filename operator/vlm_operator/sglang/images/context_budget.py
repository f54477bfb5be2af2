"""Nemotron Omni's way: native sizes, and all images of a request shrink until they fit into the context."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count, Cutting, Image, Side, share

ATTEMPTS: Final = 10


class ContextBudget(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "context_budget"
    what: ClassVar = "its own size, within patches and the context that all images share"

    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]
    min_patches: Count
    max_patches: Count
    context_tokens: Annotated[int, Field(ge=1, le=2**30)]
    """Tokens that all images of a request may have: the context length that is assumed where none is given."""

    def within(self, context_length: int | None, text_tokens: int) -> Self:
        """The context's tokens beside the text."""
        left = (context_length or self.context_tokens) - text_tokens
        return self.model_copy(update={"context_tokens": max(left, 1)})

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Shrunk again and again until all fit; what does not fit after ten times stays."""
        limit, (w, h) = self.max_patches, (0, 0)
        for _ in range(ATTEMPTS):
            w, h = self._patches(width, height, limit)
            tokens = w * h // self.merge_size**2
            if images * tokens <= self.context_tokens:
                break
            scale = self.context_tokens / (images * tokens)
            limit = max(self.min_patches, int(tokens * self.merge_size**2 * scale))
        size = CHANNELS * w * h * self.patch_size**2 * self.bytes_per_value
        # A prompt that is text keeps the placeholders of the other images, as single tokens.
        return Image(size, w * h // self.merge_size**2, share(images - 1, images), self.around)

    def _patches(self, width: int, height: int, most: int) -> tuple[int, int]:
        merge, least = self.merge_size, self.min_patches
        w, h = (max(1, round(side / self.patch_size)) for side in (width, height))
        scale = min(math.sqrt(max(min(w * h, most), least) / (w * h)), 1.0)
        w, h = (max(merge, round(side * scale / merge) * merge) for side in (w, h))
        if w * h < least:
            scale = math.sqrt(least / (w * h))
            w, h = (max(merge, math.ceil(side * scale / merge) * merge) for side in (w, h))
        if w * h > most:
            scale = math.sqrt(most / (w * h))
            w, h = (max(merge, math.floor(side * scale / merge) * merge) for side in (w, h))
        return w, h
