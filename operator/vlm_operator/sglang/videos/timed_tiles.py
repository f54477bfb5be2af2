"""Nemotron's way: frames at a rate up to a number, one tile each, with number and time before each."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Final

from pydantic import Field

from vlm_operator.sglang.images import Count, Side, square
from vlm_operator.sglang.videos import Clip, Sampling, Video, evenly

# "Frame 1 sampled at 0.50 seconds: ": without the digits of its number and of its whole seconds.
TEXT: Final = 11
FRAMING: Final = 2


class TimedTiles(Sampling):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "timed_tiles"
    what: ClassVar = "frames at a rate, one tile each"

    tile: Side
    tokens_per_tile: Count
    fps: Annotated[int, Field(ge=1)]
    max_frames: Count

    def sample(self, clip: Clip, videos: int = 1) -> Video:
        """Each video by itself."""
        wanted = math.floor(clip.seconds * min(self.fps, clip.frames_per_second))
        taken = max(min(self.max_frames, wanted, clip.frames), 1)
        frame_seconds = int(1000 / clip.frames_per_second) / 1000
        times = [int(frame * frame_seconds) for frame in evenly(clip.frames, taken)]
        marks = sum(TEXT + FRAMING + len(str(number)) + len(str(time)) for number, time in enumerate(times, 1))
        return Video(
            frames=taken,
            decoded_bytes=clip.decoded_bytes(taken),
            bytes=taken * square(self.tile) * self.bytes_per_value,
            tokens=taken * self.tokens_per_tile,
            marks=marks,
            around=self.around,
        )
