"""What each SGLang release knows: its fields with their flags and types, and its environment variables.

``catalogue.json`` is generated from the published wheels (``python -m vlm_operator.engines.generate``), ``known.yaml``
is written by hand. A release is read from them when it is asked for.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import yaml

from vlm_operator.engines.fields import UNKNOWN, Bounds, Field, Spelling


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
        return self._passable is None or name in self._passable


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


def versions_with(name: str) -> list[str]:
    """The catalogued versions that know a flag, a field or a variable, oldest first."""
    return [version for version in versions() if _knows(release(version), name)]


def _knows(one: Release, name: str) -> bool:
    return name in one.spellings if name.startswith("--") else name in one.fields or name in one.variables


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
