"""Qwen's way: both sides to multiples of a factor and the area between two limits, then patches that merge into tokens.

The same steps as ``smart_resize`` of Hugging Face's Qwen2-VL image processor, and of those that copied it with a change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from vlm_operator.sglang.images import CHANNELS, Cutting, Image, Pixels

MAX_ASPECT_RATIO: Final = 200
# If both are set, the older name wins (image_processing_qwen2_vl.py, _standardize_kwargs).
QWEN_LIMITS: Final = {
    "size.shortest_edge": "min_pixels",
    "size.longest_edge": "max_pixels",
    "min_pixels": "min_pixels",
    "max_pixels": "max_pixels",
}


def within(
    width: int, height: int, factor: int, min_pixels: float, max_pixels: float, *, frames: int = 1, least_side: int = 0
) -> tuple[int, int]:
    """Both sides at multiples of ``factor``, and the pixels of ``frames`` frames between the limits."""
    w, h = round(width / factor) * factor, round(height / factor) * factor
    w, h = max(w, least_side), max(h, least_side)
    if frames * w * h > max_pixels:
        beta = math.sqrt(frames * height * width / max_pixels)
        w = max(factor, math.floor(width / beta / factor) * factor)
        h = max(factor, math.floor(height / beta / factor) * factor)
    elif frames * w * h < min_pixels:
        beta = math.sqrt(min_pixels / (frames * height * width))
        w, h = math.ceil(width * beta / factor) * factor, math.ceil(height * beta / factor) * factor
    return w, h


def grown(width: int, height: int, least: int, whole: Callable[[float], int]) -> tuple[int, int]:
    """Both sides in proportion, so that none is below ``least``."""
    if min(width, height) >= least:
        return width, height
    scale = least / min(width, height)
    return whole(width * scale), whole(height * scale)


def refuse_extreme(width: int, height: int) -> None:
    """Raises ValueError for sides that differ too much."""
    if max(width, height) / min(width, height) > MAX_ASPECT_RATIO:
        raise ValueError(f"the sides {width} x {height} differ by more than {MAX_ASPECT_RATIO} times")


class SmartResize(Cutting):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "smart_resize"
    what: ClassVar = "both sides to a multiple, the area between two limits"

    patch_size: Annotated[int, Field(ge=1, le=1024)]
    """Pixels along one side of a patch."""
    merge_size: Annotated[int, Field(ge=1, le=64)]
    """Patches along one side that become one token."""
    temporal_patch_size: Annotated[int, Field(ge=1, le=64)]
    """Frames per patch; a still image is repeated to fill it."""
    min_pixels: Pixels
    max_pixels: Pixels
    frames: Annotated[int, Field(ge=1, le=64)] = 1
    """Frames that the limits count: GLM counts those of one patch, so an image gets half of them."""
    small_sides: Literal["kept", "lifted", "grown", "grown_at_once", "grown_down"] = "kept"
    """What happens to an image with a side below the factor: it stays, that side is lifted to the factor, or both grow in
    proportion: one after the other (PaddleOCR-VL), at once (MiMo), at once and rounded down (GLM)."""
    extreme_ratio: Literal["refused", "cut", "kept"] = "refused"
    """What happens to an image whose sides differ by more than 200 times."""
    resized_before: tuple[Pixels, Pixels] | None = None
    """Limits of the engine's own resizing before the processor's; None where there is none. It cuts extreme ratios."""
    size_alone: tuple[Pixels, Pixels] | None = None
    """Limits that the engine sets if the checkpoint's file has ``size`` and neither min_pixels nor max_pixels."""
    around: Annotated[int, Field(ge=0, le=64)] = 2
    limits: dict[str, str] = QWEN_LIMITS

    @model_validator(mode="after")
    def _in_order(self) -> SmartResize:
        if self.min_pixels > self.max_pixels:
            raise PydanticCustomError("rule", "min_pixels must not be greater than max_pixels")
        return self

    def published(self, numbers: Mapping[str, int]) -> Self:
        """The file's numbers, or the engine's own limits where it replaces ``size``."""
        if self.size_alone and numbers and not {"min_pixels", "max_pixels"} & numbers.keys():
            numbers = {**numbers, **dict(zip(("min_pixels", "max_pixels"), self.size_alone, strict=True))}
        return super().published(numbers)

    @property
    def factor(self) -> int:
        """Both sides are rounded to a multiple of this many pixels."""
        return self.patch_size * self.merge_size

    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """Both sides go to the nearest multiple of the factor (halves to even), then are scaled so that the area is within
        the limits."""
        if self.resized_before:
            least, most = self.resized_before
            first = {"min_pixels": least, "max_pixels": most, "small_sides": "lifted", "extreme_ratio": "cut"}
            width, height = self.model_copy(update=first).resized(width, height)
        w, h = self.resized(width, height)
        patches = (w // self.patch_size) * (h // self.patch_size)
        values = CHANNELS * self.temporal_patch_size * self.patch_size**2
        tokens = patches // self.merge_size**2
        return Image(patches * values * self.bytes_per_value, tokens, around=self.around, size=(w, h))

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Both sides after resizing."""
        width, height = self._proportioned(*self._grown(width, height))
        least = self.factor if self.small_sides == "lifted" else 0
        return within(
            width, height, self.factor, self.min_pixels, self.max_pixels, frames=self.frames, least_side=least
        )

    def _grown(self, width: int, height: int) -> tuple[int, int]:
        factor = self.factor
        if min(width, height) >= factor or self.small_sides in ("kept", "lifted"):
            return width, height
        if self.small_sides == "grown":
            if height < factor:
                width, height = round(width * factor / height), factor
            if width < factor:
                width, height = factor, round(height * factor / width)
            return width, height
        return grown(width, height, factor, int if self.small_sides == "grown_down" else round)

    def _proportioned(self, width: int, height: int) -> tuple[int, int]:
        if self.extreme_ratio == "refused":
            refuse_extreme(width, height)
        if max(width, height) / min(width, height) <= MAX_ASPECT_RATIO or self.extreme_ratio == "kept":
            return width, height
        short = max(self.factor, round(min(width, height) / self.factor) * self.factor)
        long = short * MAX_ASPECT_RATIO // self.factor * self.factor
        return (short, long) if height > width else (long, short)

    def enforcing(self, image: Image) -> dict[str, Any] | None:
        """Scales larger images down to the area of ``image``."""
        if image.size is None or self.limits.get("size.longest_edge") != "max_pixels":
            return None
        area = self.frames * image.size[0] * image.size[1]
        return {"image": {"size": {"shortest_edge": self.min_pixels, "longest_edge": area}}}
