"""GLM-V's way: frames at a rate, once each, made even; all frames together within two numbers of pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Pixels
from vlm_operator.sglang.images.smart_resize import grown, refuse_extreme, within
from vlm_operator.sglang.videos import Clip, Sampling, Video, evenly

LIMITS: Final = {"fps": "fps", "size.shortest_edge": "min_pixels", "size.longest_edge": "max_pixels"}
# Glm46VVideoProcessor of transformers 5.19: up to so many seconds, twice this many frames per second, and at most 640.
RATES: Final = ((30, 3.0), (300, 1.0), (math.inf, 0.5))
TWICE: Final = 2
MOST_FRAMES: Final = 640
LONGEST_SECONDS: Final = 2400
# Begin and end of a frame; ".", a digit and " seconds" of its time.
FRAMING: Final = 2
TENTHS: Final = 3


class Glm(Sampling):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "glm"
    what: ClassVar = "frames at a rate, all of them within a number of pixels"
    prepared_on: ClassVar = "cpu"

    rates: Annotated[list[Literal["fixed", "by_length"]], Field(min_length=1)]
    """How frames are taken: at ``fps`` up to ``max_seconds`` and as many over longer videos (GLM-4.1V and 4.5V), or the slower
    the longer the video is (GLM-4.6V). If it is not known which, the one with more tokens counts."""
    fps: Annotated[float, Field(gt=0)] = 2.0
    max_seconds: Annotated[int, Field(ge=1)] = 300
    patch_size: Annotated[int, Field(ge=1, le=1024)]
    merge_size: Annotated[int, Field(ge=1, le=64)]
    temporal_patch_size: Annotated[int, Field(ge=1, le=64)]
    min_pixels: Pixels
    """Of all frames together."""
    max_pixels: Pixels
    around: Annotated[int, Field(ge=0, le=64)] = 2
    limits: dict[str, str] = LIMITS

    def sample(self, clip: Clip, videos: int = 1) -> Video:
        """Each video by itself."""
        return max((self._sampled(clip, rate) for rate in self.rates), key=lambda video: video.kept_tokens)

    def _sampled(self, clip: Clip, rate: str) -> Video:
        frames = even(_by_length(clip) if rate == "by_length" else self._fixed(clip))
        factor = self.patch_size * self.merge_size
        width, height = grown(clip.width, clip.height, factor, int)
        refuse_extreme(width, height)
        width, height = within(width, height, factor, self.min_pixels, self.max_pixels, frames=len(frames))
        groups = len(frames) // self.temporal_patch_size
        patches = groups * (width // self.patch_size) * (height // self.patch_size)
        values = CHANNELS * self.temporal_patch_size * self.patch_size**2
        times = [frame / clip.frames_per_second for frame in frames[:: self.temporal_patch_size]]
        said = TENTHS if rate == "by_length" else 0
        return Video(
            frames=len(frames),
            decoded_bytes=clip.decoded_bytes(len(frames)),
            bytes=patches * values * self.bytes_per_value,
            tokens=patches // self.merge_size**2,
            marks=sum(FRAMING + len(str(int(time))) + said for time in times),
            around=self.around,
            size=(width, height),
        )

    def _fixed(self, clip: Clip) -> Sequence[int]:
        rate, last = clip.frames_per_second, clip.frames - 1
        if clip.seconds <= self.max_seconds:
            count = max(math.floor(clip.seconds * self.fps), 1)
            return [min(last, math.ceil(i * rate / self.fps)) for i in range(count)]
        count = int(self.max_seconds * self.fps)
        if count >= clip.frames:
            return range(clip.frames)
        step = clip.seconds / (count - 1)
        return [min(last, math.ceil((clip.seconds if i == count - 1 else i * step) * rate)) for i in range(count)]


def _by_length(clip: Clip) -> list[int]:
    total, seconds = clip.frames, min(clip.seconds, LONGEST_SECONDS)
    rate = TWICE * next(rate for most, rate in RATES if seconds <= most)
    wanted = min(int(seconds * rate), MOST_FRAMES)
    if total < wanted:
        return evenly(total, wanted)
    return stepped(clip, 1 / rate, wanted)


def even(frames: Iterable[int]) -> list[int]:
    """Each frame once, and the last once more if their number is odd."""
    each = list(dict.fromkeys(frames))
    return each + each[-1:] * (len(each) % 2)


def stepped(clip: Clip, step: float, wanted: int) -> list[int]:
    """The first frame at or after each step of time; if there are more or fewer than ``wanted``, that many at equal distances."""
    frames = _stepped(clip.frames, 1 / clip.frames_per_second, step, clip.seconds, wanted)
    if len(frames) < wanted:
        first = frames[0]
        return [first + frame for frame in evenly(frames[-1] - first + 1, wanted)]
    return evenly(clip.frames, wanted) if len(frames) > wanted else frames


def _stepped(total: int, frame_seconds: float, step: float, until: int, enough: int) -> list[int]:
    """The first frame at or after each step of time, one more than ``enough`` at most. Adds up as the processor does, whose
    sums of fractions are not exact."""
    frames: list[int] = []
    now = 0.0
    frame = 0
    while frame < total and len(frames) <= enough:
        frame = max(frame, int(now / frame_seconds) - 1)
        while frame < total and frame * frame_seconds < now:
            frame += 1
        if frame >= total:
            break
        frames.append(frame)
        frame += 1
        now += step
        if now >= until:
            break
    return frames
