"""Qwen's way: an even number of frames at a fixed rate, each resized by the engine (in steps of 28 pixels, whatever the model's
own patch), and once more by the model's own processor."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count, Pixels
from vlm_operator.sglang.images.smart_resize import grown, refuse_extreme, within
from vlm_operator.sglang.videos import Clip, Sampling, Video, evenly

# SGLang's processors/qwen_vl.py: a step of its first resizing, and the frames that it rounds to.
STEP: Final = 28
EVEN: Final = 2
# The least that a frame's limit may be, over the smallest frame.
LEAST_ROOM: Final = 1.05
# "<0.2 seconds>" is split into "<", "0", ".", "2", " seconds" and ">": one token for each digit.
TIMESTAMP_TOKENS: Final = 5
FRAMING: Final = 2
LIMITS: Final = {
    "fps": "fps",
    "nframes": "nframes",
    "min_frames": "min_frames",
    "max_frames": "max_frames",
    "min_pixels": "frame_min_pixels",
    "max_pixels": "users_max_pixels",
    "total_pixels": "total_pixels",
    "size.shortest_edge": "min_pixels",
    "size.longest_edge": "max_pixels",
}


class Qwen(Sampling):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "qwen"
    what: ClassVar = "frames at 2 per second, resized twice"

    fps: Annotated[float, Field(gt=0)] = 2.0
    """Frames taken per second."""
    nframes: Annotated[int, Field(ge=0)] = 0
    """Frames taken whatever the length; 0: by ``fps``."""
    min_frames: Count = 4
    max_frames: Count = 768
    frame_min_pixels: Pixels = 100_352
    frame_max_pixels: Pixels = 602_112
    users_max_pixels: Annotated[int, Field(ge=0)] = 0
    """The user's own limit in its place; 0: none."""
    total_pixels: Pixels = 90_316_800
    """Limit of the first resizing for half the frames together: those of one patch count once."""

    patch_size: Annotated[int, Field(ge=1, le=1024)]
    merge_size: Annotated[int, Field(ge=1, le=64)]
    temporal_patch_size: Annotated[int, Field(ge=1, le=64)]
    """Frames per patch."""
    min_pixels: Pixels
    """Limits of the model's own processor."""
    max_pixels: Pixels
    limits_count: Literal["frame", "video"]
    """Whether these limits are for one frame or for all frames together."""
    timestamps: bool
    """Whether each patch of frames has its time before it, and marks of its own around it."""
    around: Annotated[int, Field(ge=0, le=64)] = 2
    limits: dict[str, str] = LIMITS

    def sample(self, clip: Clip, videos: int = 1) -> Video:
        """Each video by itself."""
        taken = self._taken(clip)
        width, height = self._resized(clip, taken)
        groups = math.ceil(taken / self.temporal_patch_size)
        patches = groups * (width // self.patch_size) * (height // self.patch_size)
        values = CHANNELS * self.temporal_patch_size * self.patch_size**2
        return Video(
            frames=taken,
            decoded_bytes=clip.decoded_bytes(taken),
            bytes=patches * values * self.bytes_per_value,
            tokens=patches // self.merge_size**2,
            marks=sum(self._marks(clip, taken)) if self.timestamps else 0,
            around=self.around,
            size=(width, height),
        )

    def _taken(self, clip: Clip) -> int:
        """How many frames the engine takes (smart_nframes)."""
        total = clip.frames
        if self.nframes:
            taken = round(self.nframes / EVEN) * EVEN
        else:
            most = min(self.max_frames, total) // EVEN * EVEN
            least = math.ceil(self.min_frames / EVEN) * EVEN
            wanted = total / clip.frames_per_second * self.fps
            taken = int(min(max(wanted, least), most, total) // EVEN) * EVEN
        if not EVEN <= taken <= total:
            raise ValueError(f"{taken} frames would be taken out of {total}, and at least {EVEN} are needed")
        return taken

    def _resized(self, clip: Clip, taken: int) -> tuple[int, int]:
        least, users = self.frame_min_pixels, self.users_max_pixels
        most = max(min(users or self.frame_max_pixels, self.total_pixels / taken * EVEN), int(least * LEAST_ROOM))
        refuse_extreme(clip.width, clip.height)
        width, height = within(clip.width, clip.height, STEP, least, min(users or most, most), least_side=STEP)
        factor, whole = self.patch_size * self.merge_size, self.limits_count == "video"
        if whole:
            width, height = grown(width, height, factor, int)
        refuse_extreme(width, height)
        return within(width, height, factor, self.min_pixels, self.max_pixels, frames=taken if whole else 1)

    def _marks(self, clip: Clip, taken: int) -> list[int]:
        """Tokens of the time and the frame of each patch: the mean of its first and its last frame's time."""
        frames, size = evenly(clip.frames, taken), self.temporal_patch_size
        frames += frames[-1:] * (-len(frames) % size)
        times = [(frames[i] + frames[i + size - 1]) / 2 / clip.frames_per_second for i in range(0, len(frames), size)]
        return [TIMESTAMP_TOKENS + len(f"{time:.1f}") - 2 + FRAMING for time in times]
