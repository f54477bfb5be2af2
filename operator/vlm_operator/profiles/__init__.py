"""Measured sets of values per model family, as data: one YAML file a family. Adding one needs no code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from vlm_api.plan import Sharing
from vlm_operator.facts.types import GpuFacts
from vlm_operator.memory import ImageProcessing


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("rule", "{text}", {"text": text})


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Value = StrictBool | StrictInt | StrictFloat | StrictStr
Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z][A-Za-z0-9_.]*$")]
Sentence = Annotated[str, Field(min_length=1, max_length=2048)]
Pixels = Annotated[int, Field(ge=1, le=2**40)]


def _kind(sharing: Sharing) -> str:
    words = {Sharing.NONE: "whole GPUs", Sharing.MIG: "MIG slices"}
    return words.get(sharing, f"GPUs shared by {sharing.value}")


class Conditions(_Data):
    """The hardware that a profile was measured on. All must hold; an unknown fact fulfils none."""

    compute_capability: Annotated[list[Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]$")]], Field(min_length=1)]
    min_memory_mib: Annotated[int, Field(ge=0)]
    sharing: Annotated[list[Sharing], Field(min_length=1)]

    def unmet(self, gpu: GpuFacts) -> str | None:
        """Why this hardware is another, in a clause that follows "the profile is for ..."; None when it matches."""
        wanted = " or ".join(self.compute_capability)
        if gpu.compute_capability is None:
            return f"compute capability {wanted}, and that of these GPUs is not known"
        if str(gpu.compute_capability) not in self.compute_capability:
            return f"compute capability {wanted}, and these GPUs have {gpu.compute_capability}"
        if gpu.memory_mib is None:
            return f"at least {self.min_memory_mib} MiB a device, and that of these GPUs is not known"
        if gpu.memory_mib < self.min_memory_mib:
            return f"at least {self.min_memory_mib} MiB a device, and these have {gpu.memory_mib}"
        if gpu.sharing not in self.sharing:
            return f"{_kind(self.sharing[0])}, and these are {_kind(gpu.sharing)}"
        if gpu.virtual:
            return "GPUs of the machine itself, and these are virtual ones (vGPU)"
        return None


class OlderSpelling(_Data):
    """How to say the same to releases that lack the setting itself."""

    name: Word
    value: Value


class ProfileSetting(_Data):
    """One value of a set, with the conditions under which it holds.

    ``needs`` names conditions of ``resolve.conditions``; ``compute`` names a computation of ``resolve.rules.profile``,
    and stands instead of a literal ``value``. ``steps`` belong to ``feature_pool``: (running requests from which on, MiB).
    """

    name: Word
    rule: Word
    value: Value | None = None
    compute: Literal["running_limit", "feature_pool"] | None = None
    steps: list[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]]] = []
    needs: list[str | dict[str, int]] = []
    older: OlderSpelling | None = None
    reason: Annotated[str, Field(max_length=2048)] = ""
    evidence: Sentence | None = None

    @model_validator(mode="after")
    def _can_be_computed(self) -> ProfileSetting:
        if (self.value is None) == (self.compute is None):
            raise _wrong("give either value or compute")
        if self.compute == "running_limit" and "running_limit_known" not in self.needs:
            raise _wrong("compute: running_limit needs the condition running_limit_known")
        if (self.compute == "feature_pool") != bool(self.steps) or (self.steps and self.steps[0][0] != 0):
            raise _wrong("steps belong to compute: feature_pool, and the first begins at 0 running requests")
        return self


class Profile(_Data):
    """A measured set of values for a family on a class of hardware."""

    name: Word
    title: Annotated[str, Field(min_length=1, max_length=256)]
    evidence: Sentence
    when: Conditions
    settings: Annotated[list[ProfileSetting], Field(min_length=1, max_length=64)]


class Images(_Data):
    """How the family's image processor cuts an image: see ``memory.ImageProcessing``."""

    patch_size: Annotated[int, Field(ge=1, le=1024)]
    merge_size: Annotated[int, Field(ge=1, le=64)]
    temporal_patch_size: Annotated[int, Field(ge=1, le=64)]
    min_pixels: Pixels
    max_pixels: Pixels
    evidence: Sentence

    @model_validator(mode="after")
    def _in_order(self) -> Images:
        if self.min_pixels > self.max_pixels:
            raise _wrong("min_pixels must not be greater than max_pixels")
        return self


class Family(_Data):
    """A model family: how it cuts images, and the sets that were measured for it."""

    family: Word
    architectures: Annotated[list[Word], Field(min_length=1)]
    images: Images
    attention_backend: dict[str, str] = Field(default_factory=dict)
    profiles: Annotated[list[Profile], Field(max_length=16)] = []

    @cached_property
    def image_processing(self) -> ImageProcessing:
        """The family's image arithmetic."""
        return ImageProcessing(**self.images.model_dump())


@cache
def shipped() -> tuple[Family, ...]:
    """Every family that is shipped, in the order of their file names."""
    files = sorted(
        (f for f in resources.files(__package__).iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name
    )
    return tuple(Family.model_validate(yaml.safe_load(f.read_text())) for f in files)


def merged(families: Sequence[Family], others: Sequence[Family]) -> tuple[Family, ...]:
    """``families`` with ``others`` after them; one of the same name is replaced.

    Raises ValueError where two families of different names claim one architecture.
    """
    names = {family.family for family in others}
    result = (*(f for f in families if f.family not in names), *others)
    owners: dict[str, str] = {}
    for family in result:
        for architecture in family.architectures:
            if (owner := owners.setdefault(architecture, family.family)) != family.family:
                raise ValueError(
                    f"{architecture} is claimed by the families {owner} and {family.family}: "
                    f"take it out of one, or name yours {owner} to replace that family"
                )
    return result


def family_of(architecture: str | None, families: Sequence[Family] | None = None) -> Family | None:
    """The family that an architecture belongs to, or None; among those that are shipped where no others are given."""
    return next((f for f in (shipped() if families is None else families) if architecture in f.architectures), None)
