"""From the size of an image to its bytes and tokens: one module for each way in which image processors cut images.

Such a module has one pydantic model, a ``Cutting``: the parameters of a family's processor, as ``images`` of the family's
YAML gives them. ``algorithms.py`` knows them all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

CHANNELS: Final = 3
FLOAT32: Final = 4

SHAPE: Final = ("patch_size", "merge_size", "temporal_patch_size")
"""Numbers that have the same name in processors' files."""

Side = Annotated[int, Field(ge=1, le=2**16)]
"""Pixels along one side."""
Count = Annotated[int, Field(ge=1, le=2**24)]
Pixels = Annotated[int, Field(ge=1, le=2**40)]
Sentence = Annotated[str, Field(min_length=1, max_length=2048)]


@dataclass(frozen=True)
class Image:
    """What the engine makes of one image of a request."""

    bytes: int
    """Bytes of the tensor ``feature``, which travels from the processor to the vision encoder."""
    tokens: int
    """Tokens that the vision encoder fills."""
    marks: int = 0
    """Tokens between them: rows, tiles, positions of an encoder."""
    around: int = 0
    """Tokens that frame the whole image, such as start and end. Mostly the chat template writes them, so that the declared
    text counts them."""
    extra_bytes: int = 0
    """Bytes of other large tensors that travel with ``feature``: tiles under another name. No feature pool holds them."""
    size: tuple[int, int] | None = None
    """Width and height after resizing, where the image stays one piece."""

    @property
    def prompt_tokens(self) -> int:
        """All tokens that the image adds to the prompt."""
        return self.tokens + self.marks + self.around

    @property
    def kept_tokens(self) -> int:
        """Those that the KV cache keeps beside the request's text."""
        return self.tokens + self.marks

    @property
    def travelling_bytes(self) -> int:
        """Everything that travels between the processes."""
        return self.bytes + self.extra_bytes


class Processing(BaseModel):
    """What the processors of images and of videos have in common: the parameters of one family, and who may change them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: ClassVar[str]
    """Its name in YAML."""
    what: ClassVar[str]
    """The algorithm in a few words, for the table of models."""
    modality: ClassVar[str]
    """The part of the engine's ``mm_process_config`` that changes it."""

    around: Annotated[int, Field(ge=0, le=64)] = 0
    """Tokens that frame the whole, such as start and end."""
    bytes_per_value: Annotated[int, Field(ge=1, le=8)] = FLOAT32
    limits: dict[str, str] = {}
    """Key below ``modality`` of the engine's ``mm_process_config`` -> the field here that it sets. Later ones win."""
    checked: Literal["processor", "stand_in", "source"] = "source"
    """What the arithmetic is tested against: the engine's processor, the engine with a stand-in for the checkpoint's own code,
    or nothing: it was read in the source."""
    evidence: Sentence
    """Where the numbers come from."""

    def limited(self, config: Any) -> Self:
        """The same processor under the user's ``mm_process_config``."""
        given = _map(_map(config).get(self.modality))
        found: dict[str, int | float | bool] = {}
        for key, field in self.limits.items():
            value: Any = given
            for part in key.split("."):
                value = _map(value).get(part)
            kind = type(getattr(self, field))
            if kind is float and type(value) is int:
                value = float(value)
            if type(value) is kind and (kind is bool or value > 0):
                found[field] = value
        return self.model_copy(update=found) if found else self


class Cutting(Processing, ABC):
    """How one family's processor cuts images."""

    modality: ClassVar = "image"

    @abstractmethod
    def cut(self, width: int, height: int, images: int = 1) -> Image:
        """One of ``images`` equal images of a request. Where numbers depend on how many there are, it is their sum divided
        by them, rounded up. Raises ValueError where the processor refuses such images."""

    def published(self, numbers: Mapping[str, int]) -> Self:
        """The same processor with the numbers of a checkpoint's own file. It has the names of ``limits`` too, since
        ``mm_process_config`` overrides them; numbers that are not valid here are left out, all of them."""
        shape = {name: name for name in SHAPE if name in type(self).model_fields}
        found = {field: numbers[key] for key, field in (shape | self.limits).items() if key in numbers}
        found = {field: value for field, value in found.items() if type(getattr(self, field)) is int}
        if not found:
            return self
        try:
            return self.model_validate(
                {**self.model_dump(), **found, "evidence": "the model's own preprocessor_config.json"}
            )
        except ValidationError:
            return self

    def within(self, context_length: int | None, text_tokens: int) -> Self:
        """The same processor in a context of that length, beside so much text. Most do not look at it."""
        return self

    def enforcing(self, image: Image) -> dict[str, Any] | None:
        """The ``mm_process_config`` that scales larger images down to ``image``; None if the processor has none."""
        return None


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def square(side: int) -> int:
    """Values of a square image in colour."""
    return CHANNELS * side * side


def share(total: int, images: int) -> int:
    """The part of each image in a sum over all images of a request, rounded up."""
    return -(-total // images)
