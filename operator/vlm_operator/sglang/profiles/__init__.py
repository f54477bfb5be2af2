"""Measured sets of values per model family, as data: one YAML file a family. A set for a family whose images one of
``sglang/images`` cuts needs no code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)
from pydantic_core import PydanticCustomError

from vlm_api.plan import Sharing
from vlm_operator.facts.types import GpuFacts
from vlm_operator.sglang.images import Cutting
from vlm_operator.sglang.images.algorithms import cutting
from vlm_operator.sglang.videos import Sampling
from vlm_operator.sglang.videos.algorithms import sampling

# Ours, so the fast one may read them.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("rule", "{text}", {"text": text})


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Value = StrictBool | StrictInt | StrictFloat | StrictStr
Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z][A-Za-z0-9_.]*$")]
Sentence = Annotated[str, Field(min_length=1, max_length=2048)]


def _kind(sharing: Sharing) -> str:
    words = {Sharing.NONE: "whole GPUs", Sharing.MIG: "MIG slices"}
    return words.get(sharing, f"GPUs shared by {sharing.value}")


class Hardware(_Data):
    """The hardware that a profile was measured on. All must match; an unknown fact matches none."""

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
    """The same setting for releases that lack it under its own name."""

    name: Word
    value: Value


class ProfileSetting(_Data):
    """One value of a set, with the conditions under which it holds.

    ``needs`` names conditions of ``needs.py``; ``compute`` names a computation of ``rules/profile.py`` and replaces a
    literal ``value``. ``steps`` belong to ``feature_pool``: (MiB from this number of running requests on).
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


class Measured(_Data):
    """The traffic that a profile was measured with."""

    requests: Annotated[int, Field(ge=1)]
    """Requests in flight."""
    devices: Annotated[int, Field(ge=1)] = 1
    """Devices of a replica."""


class Profile(_Data):
    """A measured set of values for a family on a class of hardware."""

    name: Word
    title: Annotated[str, Field(min_length=1, max_length=256)]
    evidence: Sentence
    measured: Measured | None = None
    """None where it is not known."""
    when: Hardware
    settings: Annotated[list[ProfileSetting], Field(min_length=1, max_length=64)]


class Family(_Data):
    """A model family: how it cuts images, and the sets that were measured for it."""

    family: Word
    architectures: Annotated[list[Word], Field(min_length=1)]
    images: Annotated[Cutting, PlainValidator(cutting)] | None = None
    """None where it is not known how: the plan then says that it counts no images."""
    uncounted: Sentence | None = None
    """Why they are not counted, in a clause."""
    videos: Annotated[Sampling, PlainValidator(sampling)] | None = None
    """How the engine samples videos; None if they are not counted, or not taken."""
    takes_videos: bool = True
    """False if the engine's processor takes no videos for these models."""
    uncounted_videos: Sentence | None = None
    """Why they are not counted, in a clause."""
    attention_backend: dict[str, str] = Field(default_factory=dict)
    profiles: Annotated[list[Profile], Field(max_length=16)] = []

    @model_validator(mode="after")
    def _counted_or_not(self) -> Family:
        if self.images is not None and self.uncounted is not None:
            raise _wrong("images are counted, so leave out uncounted")
        if self.videos is not None and (self.uncounted_videos is not None or not self.takes_videos):
            raise _wrong("videos are counted, so leave out uncounted_videos and takes_videos")
        return self


@cache
def shipped() -> tuple[Family, ...]:
    """Every family that is shipped: first those that are only counted, then those with a file here."""
    counted = (each for text in _texts("vlm_operator.sglang.images.families") for each in yaml.load(text, _LOADER))
    own = (yaml.load(text, _LOADER) for text in _texts(__package__))
    return tuple(Family.model_validate(each) for each in (*counted, *own))


def _texts(package: str) -> list[str]:
    files = sorted((f for f in resources.files(package).iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    return [f.read_text("utf-8") for f in files]


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
