"""A command line as a user writes it -> settings by name. Reads it as the engine's argparse does, but refuses
abbreviated flags, which argparse completes, and flags that only another version has."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.catalogue.fields import Field
from vlm_operator.sglang.catalogue.releases import Release, known, versions, versions_with
from vlm_operator.sglang.choices.values import from_words

_NUMBER: Final = re.compile(r"-[0-9]+|-[0-9]*\.[0-9]+")
_MANY_SHOWN: Final = 4


@dataclass(frozen=True)
class Argument:
    """One flag with its value."""

    flag: str
    words: tuple[str, ...]
    """As written, the flag included."""
    path: str
    field: Field | None
    """None: a flag that no known version has, given to an engine of unknown version."""
    value: Any = None
    deprecated: str = ""
    """What the engine recommends instead."""


def parse(words: Sequence[str], engine: Release, path: str) -> Iterator[Argument]:
    """The arguments in ``words``, in order. ``path`` is where they stand, for errors. Raises InvalidInput."""
    position = 0
    while position < len(words):
        here = f"{path}[{position}]"
        flag, equals, attached = words[position].partition("=")
        if not flag.startswith("--") or flag == "--":
            # The word itself may be a secret.
            raise InvalidInput(here, "does not belong to a flag: write --flag, then its value")
        if len(flag.split()) > 1 or flag[-1].isspace():
            name = flag.split()[0]
            raise InvalidInput(
                here, f"{name} and its value are two entries: write one after the other, or {name}=VALUE"
            )
        end = position + 1
        while end < len(words) and _is_value(words[end]):
            end += 1
        following = words[position + 1 : end]
        found = engine.spellings.get(flag)
        if found is None:
            if engine.version is not None or _short_for(flag, engine):
                raise InvalidInput(here, unknown_flag(flag, engine))
            yield Argument(flag, tuple(words[position:end]), here, None)
            position = end
            continue
        field, spelling = found
        taken = _taken(field, flag, spelling.argument, bool(equals), following, here)
        if field.refused:
            raise InvalidInput(here, f"SGLang {engine.version} refuses {flag}: remove it")
        values = [attached] if equals else following[:taken]
        if spelling.sets is not None:
            value = spelling.sets
        else:
            try:
                value = from_words(field, values)
            except ValueError as error:
                raise InvalidInput(here, f"{flag} {error}") from None
        yield Argument(
            flag, tuple(words[position : position + 1 + taken]), here, field, value, deprecated=spelling.deprecated
        )
        position += 1 + taken


def _is_value(word: str) -> bool:
    """argparse takes a word with a leading dash for a flag, except negative numbers."""
    return not word.startswith("-") or word == "-" or _NUMBER.fullmatch(word) is not None


def _taken(field: Field, flag: str, argument: bool, attached: bool, following: Sequence[str], here: str) -> int:
    """How many of the following words are the flag's value."""
    if not argument:
        if attached:
            raise InvalidInput(here, f"{flag} takes no value: write {flag} alone")
        return 0
    if attached:
        return 0
    if field.many in ("+", "*"):
        if not following and field.many == "+":
            raise InvalidInput(here, f"{flag} needs at least one value")
        return len(following)
    if not following:
        if field.many == "?":
            return 0
        raise InvalidInput(here, f"{flag} needs a value: write it as the next entry, or {flag}=VALUE")
    return 1


def unknown_flag(flag: str, engine: Release) -> str:
    """Why a flag cannot be passed, and the next step: removed, not there yet, abbreviated or misspelt."""
    name = f"SGLang {engine.version}" if engine.version else "SGLang"
    short_for = _short_for(flag, engine)
    having = versions_with(flag)
    renamed = known()["renamed"].get(flag.removeprefix("--").replace("-", "_"))
    if having and engine.version:
        at = versions().index(engine.version)
        if at < versions().index(having[0]):
            return f"{name} has no flag {flag}, which came with {having[0]}: use that version, or remove the flag"
        instead = engine.flag(renamed) if renamed else None
        step = f"use {instead}" if instead else "remove it"
        return f"{name} has no flag {flag} ({having[-1]} was the last version with it): {step}"
    if short_for:
        listed = ", ".join(short_for[:_MANY_SHOWN]) + (" and others" if len(short_for) > _MANY_SHOWN else "")
        reserved = known()["reserved"].get(engine.spellings[short_for[0]][0].name) if len(short_for) == 1 else None
        return f"{flag} is short for {listed}: {reserved or 'write the flag in full'}"
    suggestion = engine.suggest(flag)
    return f"{name} has no flag {flag}: " + (f"did you mean {suggestion}?" if suggestion else "remove it")


def _short_for(flag: str, engine: Release) -> list[str]:
    return sorted(spelling for spelling in engine.spellings if spelling.startswith(flag))
