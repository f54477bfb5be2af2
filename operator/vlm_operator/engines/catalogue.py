"""What each SGLang release knows: its fields with their flags and types, and its environment variables.

``catalogue.json`` is generated from the published wheels (``python -m vlm_operator.engines.generate``), ``known.yaml``
is written by hand. A release is read from them when it is asked for.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Final, Literal

import yaml

Kind = Literal["str", "int", "size", "float", "bool", "json"]
Many = Literal["+", "*", "?"]

# A value that argparse fills in by itself, where the source does not say which.
UNKNOWN: Final = object()


@dataclass(frozen=True)
class Bounds:
    """The values that make sense. ``above`` and ``below`` exclude the bound itself."""

    min: float | None = None
    max: float | None = None
    above: float | None = None
    below: float | None = None
    or_: tuple[float, ...] = ()

    def problem(self, value: float) -> str | None:
        """What is wrong with a value, such as "must be above 0 and below 1"; None where it is within the bounds."""
        bounds = [
            (f"at least {self.min}", self.min is None or value >= self.min),
            (f"above {self.above}", self.above is None or value > self.above),
            (f"at most {self.max}", self.max is None or value <= self.max),
            (f"below {self.below}", self.below is None or value < self.below),
        ]
        if value in self.or_ or all(holds for _, holds in bounds):
            return None
        stated = (self.min, self.above, self.max, self.below)
        words = [words for (words, _), bound in zip(bounds, stated, strict=True) if bound is not None]
        others = "".join(f", or {other}" for other in self.or_)
        return f"must be {' and '.join(words)}{others}"


@dataclass(frozen=True)
class Spelling:
    """One way to say a field on the command line."""

    flag: str
    sets: Any = None
    """The value that the flag alone stands for; None where a value follows."""
    argument: bool = True
    """Whether a value follows."""
    deprecated: str = ""
    """What the engine recommends instead; empty where the spelling is current."""


@dataclass(frozen=True)
class Field:
    """A field of ``ServerArgs``, or an environment variable (without a flag)."""

    name: str
    kind: Kind
    flag: str = ""
    many: Many | None = None
    choices: tuple[Any, ...] = ()
    default: Any = UNKNOWN
    spellings: tuple[Spelling, ...] = ()
    """Every way to say it, the flag first."""
    negative: str = ""
    """The flag that says no, where there is one."""
    without_effect: bool = False
    """The engine accepts it, warns, and does nothing."""
    refused: bool = False
    """The engine knows the flag only to stop with a message."""


class Release:
    """One SGLang version, or an unknown one (``version`` None): satisfies ``engines.types.EngineVersion``.

    For an unknown version ``fields`` and ``variables`` hold what any version knows, in its newest form, so that a
    user's values can be read; what the operator itself may pass is only what every version has in the same form.
    """

    def __init__(
        self,
        version: str | None,
        fields: Mapping[str, Field],
        variables: Mapping[str, Field],
        passable: frozenset[str] | None = None,
        features: frozenset[str] = frozenset(),
    ) -> None:
        self._version = version
        self.fields = fields
        self.variables = variables
        self._passable = passable
        self._features = features

    def __repr__(self) -> str:
        return f"Release({self._version})"

    @property
    def version(self) -> str | None:
        """Such as ``0.5.23``; None when unknown."""
        return self._version

    @property
    def has_override_set(self) -> bool:
        """Whether the version itself brings the Qwen3-VL Hopper set."""
        return "override_set" in self._features

    @property
    def has_plugins(self) -> bool:
        """Whether it loads the entry points ``sglang.srt.platforms`` and ``sglang.srt.plugins``."""
        return "plugins" in self._features

    @property
    def has_ready_endpoint(self) -> bool:
        """Whether it serves ``/ready``."""
        return "ready_endpoint" in self._features

    @property
    def field_names(self) -> frozenset[str]:
        """Names of all fields that the command line can set."""
        return frozenset(self.fields)

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
            return [found.flag, json.dumps(value, separators=(",", ":"))]
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
        return self._passable is None or name in self._passable


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list | bool) else str(value)


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
    at = versions().index(version)
    fields = {name: _field(name, span) for name, span in _at("fields", at)}
    for old, new in known()["renamed"].items():
        if old in fields and new not in fields:
            fields[new] = _field(new, dict(_at("fields", at))[old])
            del fields[old]
    variables = {name: _field(name, span) for name, span in _at("variables", at)}
    features = (name for name, it in known()["features"].items() if at >= versions().index(it["since"]))
    return Release(version, fields, variables, features=frozenset(features))


@cache
def unknown_release() -> Release:
    """What may be said to a version that nobody knows."""
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
    return Release(None, fields, variables, passable=frozenset(passable))


def last_with(flag: str) -> str | None:
    """The newest catalogued version whose command line knows a flag; None where none does."""
    return next((version for version in reversed(versions()) if flag in release(version).spellings), None)


def first_with(name: str) -> str | None:
    """The oldest catalogued version that knows a field or variable, from which on every version does; else None."""
    found = [name in release(version).fields or name in release(version).variables for version in versions()]
    return versions()[found.index(True)] if True in found and found[-1] else None


def _same(one: Field, other: Field) -> bool:
    return one.flag == other.flag and one.kind == other.kind and one.many == other.many and not one.refused


def _at(section: str, at: int) -> Iterable[tuple[str, dict[str, Any]]]:
    order = {version: position for position, version in enumerate(versions())}
    for name, spans in _generated()[section].items():
        for span in spans:
            if order[span["since"]] <= at <= order[span.get("until", versions()[-1])]:
                yield name, span


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
