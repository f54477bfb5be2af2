"""Gemma 4's way: at most a fixed number of frames, each resized like an image with a budget of its own."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Final

from pydantic import Field

from vlm_operator.sglang.images import Count, Side
from vlm_operator.sglang.images.filled_budget import FilledBudget
from vlm_operator.sglang.videos import Clip, Sampling, Video

# "00:02 " before each frame, a space between two, begin and end.
TIME: Final = 6
FRAMING: Final = 2


class FilledFrames(Sampling):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "filled_frames"
    what: ClassVar = "a fixed number of frames, each resized like an image"

    frames: Annotated[int, Field(ge=1, le=4096)]
    patch_size: Side
    pool: Annotated[int, Field(ge=1, le=64)]
    """Patches along one side that become one token."""
    max_tokens: Count
    """Of one frame."""

    def sample(self, clip: Clip, videos: int = 1) -> Video:
        """Each video by itself."""
        taken = clip.frames if clip.frames <= self.frames else math.ceil(clip.frames / (clip.frames / self.frames))
        frame = FilledBudget(
            patch_size=self.patch_size, pool=self.pool, max_tokens=self.max_tokens, evidence=self.evidence
        ).cut(clip.width, clip.height)
        return Video(
            frames=taken,
            decoded_bytes=clip.decoded_bytes(taken),
            bytes=taken * frame.bytes,
            tokens=taken * frame.tokens,
            marks=taken * (TIME + FRAMING + 1) - 1,
            around=self.around,
            size=frame.size,
        )
