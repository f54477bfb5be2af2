"""MiniMax's way: frames at least one step of time apart and the last one, the longest side within a limit."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Final

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Pixels, Side
from vlm_operator.sglang.images.longest_side import LongestSide
from vlm_operator.sglang.videos import Clip, Sampling, Video

# How much earlier than a step a frame may be.
EARLY_SECONDS: Final = 1e-4
# "]<]0.5 seconds[>[": without the digits of its whole seconds.
TEXT: Final = 5
FRAMING: Final = 2


class Spaced(Sampling):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "spaced"
    what: ClassVar = "frames a step of time apart, the longest side within a limit"
    prepared_on: ClassVar = "cpu"

    fps: Annotated[float, Field(gt=0)]
    longest_side: Side
    shortest_side: Side
    max_pixels: Pixels
    """Of all frames together; more are refused."""
    patch_size: Side
    merge_size: Annotated[int, Field(ge=1, le=64)]
    temporal_patch_size: Annotated[int, Field(ge=1, le=64)]

    def sample(self, clip: Clip, videos: int = 1) -> Video:
        """Each video by itself."""
        frame = LongestSide(
            longest_side=self.longest_side,
            shortest_side=self.shortest_side,
            max_pixels=self.max_pixels,
            patch_size=self.patch_size,
            merge_size=self.merge_size,
            temporal_patch_size=self.temporal_patch_size,
            bytes_per_value=self.bytes_per_value,
            evidence=self.evidence,
        ).cut(clip.width, clip.height)
        pixels = frame.bytes // (CHANNELS * self.temporal_patch_size * self.bytes_per_value)
        frames = self._frames(clip, self.max_pixels // pixels)
        if len(frames) * pixels > self.max_pixels:
            raise ValueError(f"all frames of a video may have {self.max_pixels:,} pixels, and there are more")
        groups = math.ceil(len(frames) / self.temporal_patch_size)
        times = [frames[i * self.temporal_patch_size] / clip.frames_per_second for i in range(groups)]
        return Video(
            frames=len(frames),
            decoded_bytes=clip.decoded_bytes(len(frames)),
            bytes=groups * frame.bytes,
            tokens=groups * frame.tokens,
            marks=sum(TEXT + FRAMING + len(str(int(time))) for time in times),
            around=self.around,
            size=frame.size,
        )

    def _frames(self, clip: Clip, most: int) -> list[int]:
        """One more than ``most`` at most."""
        rate, last = clip.frames_per_second, clip.frames - 1
        frames, next_frame = [0], 0
        while len(frames) <= most:
            next_frame = max(math.ceil((frames[-1] / rate + 1 / self.fps - EARLY_SECONDS) * rate), frames[-1] + 1)
            if next_frame > last:
                break
            frames.append(next_frame)
        if frames[-1] != last and last / rate - frames[-1] / rate > EARLY_SECONDS:
            frames.append(last)
        return frames
