"""What every rule reads, and what the rules before it have declared."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vlm_api.plan import Setting, Source
from vlm_api.spec import Device, Reuse, Tuning, VLMServiceSpec
from vlm_operator.facts.types import GpuFacts, ModelFacts
from vlm_operator.sglang.catalogue.releases import Release
from vlm_operator.sglang.choices import UserChoices
from vlm_operator.sglang.images import Image
from vlm_operator.sglang.media import InFlight, Part
from vlm_operator.sglang.profiles import Family, Profile
from vlm_operator.sglang.videos import Video


@dataclass(frozen=True)
class Held:
    """How many declared requests the memory of one rank holds at once; None where it is unknown or nothing limits them."""

    kv: int | None
    states: int | None

    @property
    def requests(self) -> int | None:
        """The smaller of both."""
        return min((n for n in (self.kv, self.states) if n is not None), default=None)


@dataclass(frozen=True)
class Context:
    """The facts of one pool. ``gpu`` is None on the CPU, and if no node is known yet."""

    spec: VLMServiceSpec
    """The spec of the service's pool."""
    served_model_name: str
    engine: Release
    choices: UserChoices
    gpu: GpuFacts | None
    model: ModelFacts
    family: Family | None
    image: Image | None
    """One image of the declared size after resizing; None when the size or the family is not known."""
    devices_per_pod: int
    video: Video | None = None
    """One video of the declared length and size as the engine samples it; None when none is declared or it is not counted."""

    held: Held | None = None
    """What memory holds, once the other settings are known; None before, and if it holds all declared requests."""

    @cached_property
    def cuda(self) -> bool:
        """Whether GPUs compute."""
        return self.spec.hardware.device is Device.CUDA

    @property
    def tuned(self) -> bool:
        """Whether the operator decides at all."""
        return self.spec.engine.tuning is Tuning.AUTO

    @property
    def one_node(self) -> bool:
        """Whether one node serves a whole replica."""
        return self.spec.multinode.node_count == 1

    @property
    def images_repeat(self) -> bool:
        """Whether the same image is declared to come back. Unknown counts as no, as the engine itself assumes."""
        return self.spec.workload.images.reuse is Reuse.REPEATED

    @cached_property
    def media(self) -> tuple[Part, ...]:
        """The images and videos of one declared request that can be counted."""
        workload, parts = self.spec.workload, []
        if self.image is not None:
            parts.append(Part("images", workload.images.per_request, self.image))
        if self.video is not None and workload.videos is not None:
            parts.append(Part("videos", workload.videos.per_request, self.video))
        return tuple(parts)

    @cached_property
    def in_flight(self) -> InFlight | None:
        """Those of all requests that may wait or run at once; None if nothing can be counted or the concurrency is not
        declared."""
        concurrency = self.spec.workload.concurrency
        return None if concurrency is None or not self.media else InFlight(concurrency, self.media)

    @cached_property
    def profile(self) -> Profile | None:
        """The first measured profile for this hardware."""
        if self.family is None or self.gpu is None:
            return None
        return next((p for p in self.family.profiles if p.when.unmet(self.gpu) is None), None)

    def engine_name(self) -> str:
        """The engine's name in sentences."""
        return f"SGLang {self.engine.version}" if self.engine.version else "this SGLang of unknown version"

    def knows(self, name: str) -> bool:
        """Whether the version has that setting, be it a flag or a variable."""
        return self.engine.has_variable(name) if is_variable(name) else self.engine.flag(name) is not None


def is_variable(name: str) -> bool:
    """Whether a setting's name is that of an environment variable: those are upper case, fields lower case."""
    return name.isupper()


@dataclass
class Declared:
    """Settings in the order in which rules declared them. The first value that is applied stands."""

    _settings: dict[str, Setting] = field(default_factory=dict)

    def add(self, setting: Setting) -> None:
        """Keeps a setting, unless one of that name is applied already; an applied one replaces one that is not."""
        present = self._settings.get(setting.name)
        if present is None or (setting.applied and not present.applied):
            self._settings[setting.name] = setting

    def value(self, name: str) -> Any:
        """The value that is passed to the engine, or None."""
        setting = self._settings.get(name)
        return setting.value if setting is not None and setting.applied else None

    def __contains__(self, name: str) -> bool:
        setting = self._settings.get(name)
        return setting is not None and setting.applied

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def get(self, name: str) -> Setting | None:
        """The setting of that name, applied or not."""
        return self._settings.get(name)

    def fill_expected(self, name: str, expected: Any) -> None:
        """Records what the engine will choose for a setting that is left to it."""
        setting = self._settings[name]
        if not setting.applied:
            self._settings[name] = setting.model_copy(update={"expected": expected, "source": Source.ENGINE})


def applied(name: str, value: Any, source: Source, rule: str, reason: str, evidence: str | None = None) -> Setting:
    """A setting that is passed to the engine."""
    return Setting(name=name, value=value, applied=True, source=source, rule=rule, reason=reason, evidence=evidence)


def left(name: str, rule: str, reason: str, evidence: str | None = None) -> Setting:
    """A setting that is left to the engine, with the reason why the rule did not fire."""
    return Setting(
        name=name, value=None, applied=False, source=Source.ENGINE, rule=rule, reason=reason, evidence=evidence
    )
