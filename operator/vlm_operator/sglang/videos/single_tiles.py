"""InternVL's way: a fixed number of frames from start to end, one tile each, as far as they fit into the context."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self

from pydantic import Field

from vlm_operator.sglang.images import Count, Side, square
from vlm_operator.sglang.videos import Clip, Sampling, Video

# "Frame", " ", ":" and " " before each frame, a token for each digit of its number, and a line break after it.
TEXT: Final = 5
FRAMING: Final = 2


class SingleTiles(Sampling):
    """The parameters of one model family's processor."""

    algorithm: ClassVar = "single_tiles"
    what: ClassVar = "a fixed number of frames, one tile each"

    tile: Side
    tokens_per_tile: Count
    frames: Annotated[int, Field(ge=1, le=4096)]
    reserved: Annotated[int, Field(ge=0)] = 256
    """Tokens of the context that the engine keeps free of frames."""
    room: Annotated[int, Field(ge=0)] | None = None
    """Tokens of the context that text and images leave; None: enough."""

    def beside(self, context_length: int | None, other_tokens: int) -> Self:
        """Frames get what the context leaves."""
        room = None if context_length is None else max(context_length - other_tokens, 0)
        return self.model_copy(update={"room": room})

    def sample(self, clip: Clip, videos: int = 1) -> Video:
        """All videos of a request share the context. A video with fewer frames shows some of them several times."""
        fit = self.frames if self.room is None else (self.room - self.reserved) // self.tokens_per_tile // videos
        taken = max(min(self.frames, fit), 1)
        return Video(
            frames=taken,
            decoded_bytes=clip.decoded_bytes(1),
            bytes=taken * square(self.tile) * self.bytes_per_value,
            tokens=taken * self.tokens_per_tile,
            marks=sum(TEXT + FRAMING + len(str(number)) for number in range(1, taken + 1)),
            around=self.around,
        )
