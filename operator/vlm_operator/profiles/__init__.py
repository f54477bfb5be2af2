"""Measured sets of values per model family, as data: one YAML file a family. Adding one needs no code."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from vlm_api.plan import Sharing
from vlm_operator.facts.types import GpuFacts
from vlm_operator.memory import ImageProcessing


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Conditions(_Data):
    """The hardware that a profile was measured on. All must hold; an unknown fact fulfils none."""

    compute_capability: list[str]
    min_memory_mib: int
    sharing: list[Sharing]

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
            return f"whole GPUs, and these are {gpu.sharing.value.upper()} slices"
        return None


class OlderSpelling(_Data):
    """How to say the same to releases that lack the setting itself."""

    name: str
    value: int | float | bool | str


class ProfileSetting(_Data):
    """One value of a set, with the conditions under which it holds.

    ``needs`` names conditions of ``resolve.conditions``; ``compute`` names a computation of ``resolve.computations``,
    and stands instead of a literal ``value``.
    """

    name: str
    rule: str
    value: int | float | bool | str | None = None
    compute: Literal["running_limit", "feature_pool"] | None = None
    steps: list[tuple[int, int]] = []
    needs: list[str | dict[str, int]] = []
    older: OlderSpelling | None = None
    reason: str = ""
    evidence: str | None = None


class Profile(_Data):
    """A measured set of values for a family on a class of hardware."""

    name: str
    title: str
    evidence: str
    when: Conditions
    settings: list[ProfileSetting]


class Family(_Data):
    """A model family: how it cuts images, and the sets that were measured for it."""

    family: str
    architectures: list[str]
    images: dict[str, Any]
    attention_backend: dict[str, str] = Field(default_factory=dict)
    profiles: list[Profile] = []

    @property
    def image_processing(self) -> ImageProcessing:
        """The family's image arithmetic."""
        return ImageProcessing(**self.images)


@cache
def families() -> tuple[Family, ...]:
    """Every family that is shipped, in the order of their file names."""
    files = sorted(
        (f for f in resources.files(__package__).iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name
    )
    return tuple(Family.model_validate(yaml.safe_load(f.read_text())) for f in files)


def family_of(architecture: str | None) -> Family | None:
    """The family that an architecture belongs to, or None."""
    return next((f for f in families() if architecture in f.architectures), None)
