"""What each SGLang release knows and does: fields with their flags and types, environment variables, facts, faults.

``catalogue.json`` is generated from the published wheels (``python -m vlm_operator.sglang.catalogue.generate``); what no
wheel says is in ``known.yaml``. The newest release there is the default.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal

import yaml

from vlm_operator.sglang.catalogue.fields import UNKNOWN, Bounds, Field, Spelling

Fact = Literal["hopper_set", "pool_off_kv_cache", "graph_within_running_limit", "answers_evicted_first"]
"""What some releases do by themselves; ``generate/facts.py`` says what each means."""


@dataclass(frozen=True)
class Fault:
    """A known fault of a release."""

    name: str
    fixed_in: str
    """The first version without it."""
    reason: str
    """What it does, as the rest of a sentence that begins with the version's name."""
    step: str
    """What to do instead of using another version, beginning with "or"."""
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Setting -> the values with which it shows; empty: always."""


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """One SGLang release, or an unknown one (``version`` None).

    For an unknown release, ``fields`` and ``variables`` hold what any release knows, in its newest form, so that a user's
    values can be read; what the operator itself may pass is only what every release has in the same form. Its own choices
    are taken to be the newest release's.
    """

    version: str | None
    """Such as ``1.2.3`` or ``1.2.3.post1``."""
    fields: Mapping[str, Field]
    variables: Mapping[str, Field]
    facts: Mapping[str, Any]
    vision_off: frozenset[str] = frozenset()
    """Architectures whose vision it turns off unless ``enable_multimodal`` is set."""
    quantization: Mapping[str, str] = field(default_factory=dict)
    """Quantization method -> the least compute capability that it runs on."""
    attention: Mapping[str, Mapping[str, list[int]]] = field(default_factory=dict)
    """Attention backend -> the major compute capabilities that it is held to (``generate/capabilities.py``)."""
    faults: tuple[Fault, ...] = ()
    passable: frozenset[str] | None = None
    """The settings that the operator may pass; None: all."""

    def __repr__(self) -> str:
        return f"Release({self.version})"

    def does(self, fact: Fact) -> bool:
        """Whether the release does that by itself. An unknown one counts as the newest."""
        return bool(self.facts.get(fact))

    def capacity_defaults(self, memory_mib: int | None, tensor: int) -> tuple[int, int]:
        """(chunked prefill tokens, decode graph limit) that the engine uses on a device of ``memory_mib`` by default."""
        if memory_mib is None:
            return 4096, 160
        rows: list[list[int | None]] = self.facts["capacity_defaults"]
        _, chunk, small, large = next(row for row in rows if row[0] is None or memory_mib < row[0])
        return int(chunk or 0), int((small if tensor < 4 else large) or 0)

    @property
    def has_override_set(self) -> bool:
        """Whether it is sure to apply the Qwen3-VL Hopper set by itself."""
        return self.version is not None and self.does("hopper_set")

    @property
    def has_plugins(self) -> bool:
        """Whether it is sure to load the entry points ``sglang.srt.platforms`` and ``sglang.srt.plugins``."""
        return self.version is not None and bool(self.facts.get("plugins"))

    def fault(self, name: str) -> Fault | None:
        """The fault of that name, if the release has it."""
        return next((fault for fault in self.faults if fault.name == name), None)

    def flag(self, setting: str) -> str | None:
        """The flag for a setting, in this version's spelling; None where the version has none."""
        found = self.fields.get(setting)
        return found.flag if found and not found.refused and self._may_pass(setting) else None

    def has_variable(self, name: str) -> bool:
        """Whether the version reads that environment variable."""
        return name in self.variables and self._may_pass(name)

    def default(self, setting: str) -> Any:
        """The default that the source states, which start-up may still replace; None where it states none."""
        found = self.fields.get(setting) or self.variables.get(setting)
        return None if found is None or found.default is UNKNOWN else found.default

    def render_flag(self, setting: str, value: Any) -> list[str]:
        """``[flag, value...]`` for a field of this version: JSON is compact, a list is several words, True is the flag
        alone, and False is the flag's negative form or nothing. Raises KeyError for a field that no version has."""
        found = self.fields[setting]
        if isinstance(value, bool) and found.kind == "bool":
            flag = found.flag if value else found.negative
            return [flag] if flag else []
        if found.kind == "json" and not isinstance(value, str):
            return [found.flag, json.dumps(value, separators=(",", ":"), sort_keys=True)]
        if isinstance(value, list | tuple):
            return [found.flag, *(_word(item) for item in value)]
        word = _word(value)
        # argparse takes a word that starts with a dash for a flag, unless it is a number or stands behind "=".
        return [f"{found.flag}={word}"] if word.startswith("-") and isinstance(value, str) else [found.flag, word]

    @cached_property
    def spellings(self) -> Mapping[str, tuple[Field, Spelling]]:
        """Every flag that the version's command line knows."""
        return {spelling.flag: (found, spelling) for found in self.fields.values() for spelling in found.spellings}

    def suggest(self, name: str) -> str | None:
        """The known setting, variable or flag (as ``name`` is written) that is spelt most like ``name``."""
        if name.startswith("-"):
            known: Iterable[str] = self.spellings
        elif name.isupper():
            known = self.variables
        else:
            known, name = self.fields, name.replace("-", "_")
        return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.75)), None)

    def _may_pass(self, name: str) -> bool:
        return self.passable is None or name in self.passable


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return (
        json.dumps(value, separators=(",", ":"), sort_keys=True)
        if isinstance(value, dict | list | bool)
        else str(value)
    )


# --- reading ------------------------------------------------------------------------------------------------------


@cache
def _generated() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files(__package__).joinpath("catalogue.json").read_text("utf-8"))
    return data


@cache
def known() -> Mapping[str, Any]:
    """``known.yaml``."""
    data: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("known.yaml").read_text("utf-8"))
    return data


@cache
def bounds(name: str) -> Bounds | None:
    """The range of a setting or variable, or None where every value of its type will do."""
    found = known()["ranges"].get(name)
    if found is None:
        return None
    return Bounds(**{k: v for k, v in found.items() if k != "or"}, or_=tuple(found.get("or", ())))


def versions() -> tuple[str, ...]:
    """Every catalogued version, oldest first."""
    return tuple(_generated()["versions"])


def newest() -> str:
    """The newest catalogued version."""
    return versions()[-1]


@cache
def release(version: str) -> Release:
    """A catalogued version. Raises KeyError for another."""
    if version not in versions():
        raise KeyError(version)
    fields = {name: _field(name, span) for name, span in _at("fields", version)}
    for old, new in known()["renamed"].items():
        if old in fields and new not in fields:
            fields[new] = replace(fields.pop(old), name=new)
    return Release(
        version,
        fields,
        {name: _field(name, span) for name, span in _at("variables", version)},
        {name: span["value"] for name, span in _at("facts", version)},
        frozenset(name for name, _ in _at("vision_off", version)),
        {name: span["least"] for name, span in _at("quantization", version)},
        dict(_at("attention", version)),
        tuple(_faults(version)),
    )


@cache
def unknown_release() -> Release:
    """What may be passed to a release that is not in the catalogue."""
    every = [release(version) for version in versions()]
    fields: dict[str, Field] = {}
    variables: dict[str, Field] = {}
    for one in every:
        fields |= one.fields
        variables |= one.variables
    passable = {
        name
        for name, field in fields.items()
        if all(name in one.fields and _same(one.fields[name], field) for one in every)
    } | {name for name in variables if all(name in one.variables for one in every)}
    newest_one = every[-1]
    return Release(
        None,
        fields,
        variables,
        newest_one.facts,
        newest_one.vision_off,
        newest_one.quantization,
        newest_one.attention,
        passable=frozenset(passable),
    )


def takes_media(architecture: str) -> bool:
    """Whether any catalogued version lists the architecture among models that take images, video or audio. A model of
    another name takes them too if its config.json nests the language model's part (text_config)."""
    return architecture in _generated()["takes_media"] or architecture in _generated()["vision_off"]


def versions_with(name: str) -> list[str]:
    """The catalogued versions that know a flag, a field or a variable, oldest first."""
    return [version for version in versions() if _knows(release(version), name)]


def _knows(one: Release, name: str) -> bool:
    return name in one.spellings if name.startswith("--") else name in one.fields or name in one.variables


def _same(one: Field, other: Field) -> bool:
    return one.flag == other.flag and one.kind == other.kind and one.many == other.many and not one.refused


def _at(section: str, version: str) -> Iterable[tuple[str, dict[str, Any]]]:
    order = {version: position for position, version in enumerate(versions())}
    for name, spans in _generated()[section].items():
        for span in spans:
            if order[span["since"]] <= order[version] <= order[span.get("until", newest())]:
                yield name, span


def _faults(version: str) -> Iterable[Fault]:
    for name, row in known()["faults"].items():
        if versions().index(version) < versions().index(row["fixed_in"]):
            when = {setting: tuple(values) for setting, values in row.get("when", {}).items()}
            yield Fault(name, row["fixed_in"], row["reason"], row["step"], when)


def _field(name: str, span: Mapping[str, Any]) -> Field:
    return Field(
        name=name,
        kind=span["type"],
        flag=span.get("flag", ""),
        many=span.get("many"),
        choices=tuple(span.get("choices", ())),
        default=span["default"] if "default" in span else False if span["type"] == "bool" else UNKNOWN,
        spellings=tuple(_spellings(span)),
        negative=span.get("negative", ""),
        without_effect="ignored" in span,
        refused="refused" in span,
    )


def _spellings(span: Mapping[str, Any]) -> Iterable[Spelling]:
    if "flag" not in span:
        return
    plain = span["type"] == "bool"
    for flag in (span["flag"], *span.get("aliases", ())):
        yield Spelling(flag, sets=True if plain else None, argument=not plain, deprecated=span.get("deprecated", ""))
    if "negative" in span:
        yield Spelling(span["negative"], sets=False, argument=False)
    for also in span.get("also", ()):
        sets = also.get("sets", True if plain else None)
        argument = also.get("argument", sets is None)
        yield Spelling(also["flag"], sets=sets, argument=argument, deprecated=also["deprecated"])
