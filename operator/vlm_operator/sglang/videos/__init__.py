"""From the length, rate and size of a video to its frames, bytes and tokens: one module for each way in which the engine
samples and resizes frames.

Such a module has one pydantic model, a ``Sampling``: the parameters of a family's processor, as ``videos`` of the family's
YAML gives them. ``algorithms.py`` knows them all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from vlm_operator.sglang.images import CHANNELS, Image, Processing


@dataclass(frozen=True)
class Clip:
    """A video as a client sends it."""

    seconds: int
    frames_per_second: int
    width: int
    height: int

    @property
    def frames(self) -> int:
        """All frames in the file."""
        return self.seconds * self.frames_per_second

    def decoded_bytes(self, sampled: int) -> int:
        """Bytes of so many frames in the size of the file: whole frames are decoded before they are resized."""
        return sampled * self.width * self.height * CHANNELS


@dataclass(frozen=True, kw_only=True)
class Video(Image):
    """What the engine makes of one video of a request."""

    frames: int
    """Frames that the engine takes out of it."""
    decoded_bytes: int
    """Bytes of these frames before they are resized."""


class Sampling(Processing, ABC):
    """How one family's processor takes frames out of a video and resizes them."""

    modality: ClassVar = "video"
    prepared_on: ClassVar[Literal["gpu", "cpu"]] = "gpu"
    """Where the engine decodes and resizes frames, if the service has GPUs and its decoder can."""

    def unread(self, config: Any) -> list[str]:
        """What the user's ``mm_process_config`` says about videos and this does not count."""
        given = config.get(self.modality) if isinstance(config, Mapping) else None
        read = {key.partition(".")[0] for key in self.limits}
        return sorted(str(key) for key in given if key not in read) if isinstance(given, Mapping) else []

    def beside(self, context_length: int | None, other_tokens: int) -> Self:
        """The same processor in a context of that length, beside so many tokens of text and images. Most do not look at
        it."""
        return self

    @abstractmethod
    def sample(self, clip: Clip, videos: int = 1) -> Video:
        """One of ``videos`` equal videos of a request. Raises ValueError where the processor refuses such videos."""


def evenly(total: int, count: int) -> list[int]:
    """``count`` frames of ``total``, from the first to the last, rounded down: numpy's linspace as whole numbers."""
    step = (total - 1) / (count - 1) if count > 1 else 0
    return [total - 1 if i and i == count - 1 else int(i * step) for i in range(count)]
