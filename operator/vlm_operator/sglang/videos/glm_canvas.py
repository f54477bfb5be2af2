"""GLM-5.3's way: frames at a rate up to a number, made even, on a canvas of whole tokens; all frames share a number of tokens."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from vlm_operator.sglang.images import CHANNELS, Count
from vlm_operator.sglang.images.aligned_canvas import canvas
from vlm_operator.sglang.videos import Clip, Sampling, Video
from vlm_operator.sglang.videos.glm import FRAMING, TENTHS, even, stepped

LIMITS: Final = {"fps": "fps", "max_frames": "max_frames", "max_image_tokens": "max_tokens"}


class GlmCanvas(Sampling):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "glm_canvas"
    what: ClassVar = "frames at a rate, on canvases that share a number of tokens"
    prepared_on: ClassVar = "cpu"

    fps: Annotated[float, Field(gt=0)] = 2.0
    max_frames: Count
    patch_size: Annotated[int, Field(ge=1, le=1024)]
    merge_size: Annotated[int, Field(ge=1, le=64)]
    temporal_patch_size: Annotated[int, Field(ge=1, le=64)]
    min_tokens: Count
    """Of all frames together."""
    max_tokens: Count
    """Of all videos together."""
    around: Annotated[int, Field(ge=0, le=64)] = 2
    limits: dict[str, str] = LIMITS

    def sample(self, clip: Clip, videos: int = 1) -> Video:
        """The videos of a request share its tokens."""
        wanted = max(min(int(clip.seconds * self.fps), self.max_frames), 1)
        frames = even(stepped(clip, 1 / self.fps, wanted))
        groups = len(frames) // self.temporal_patch_size
        factor, most = self.patch_size * self.merge_size, max(self.max_tokens // videos, 1)
        width, height = canvas(clip.width, clip.height, factor, self.min_tokens / groups, most / groups)
        tokens, values = groups * width * height, CHANNELS * self.temporal_patch_size * factor**2
        times = [frame / clip.frames_per_second for frame in frames[:: self.temporal_patch_size]]
        return Video(
            frames=len(frames),
            decoded_bytes=clip.decoded_bytes(len(frames)),
            bytes=tokens * values * self.bytes_per_value,
            tokens=tokens,
            marks=sum(FRAMING + TENTHS + len(str(int(time))) for time in times),
            around=self.around,
            size=(width * factor, height * factor),
        )
