"""The families of models that plans may use: those that are shipped, and the user's own from a folder."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from vlm_api.problems import nearest, problems
from vlm_operator.documents import read_values
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.catalogue.releases import unknown_release
from vlm_operator.sglang.choices.values import typed
from vlm_operator.sglang.profiles import Family, ProfileSetting, merged, shipped
from vlm_operator.sglang.profiles.needs import NAMES, WITH_LIMIT

_FORM: Final = "write one family, a map with family, architectures, images and profiles"

log = logging.getLogger(__name__)


def families(folder: str | None) -> tuple[Family, ...]:
    """The shipped families, and those in the YAML files of ``folder``; one of the same name is replaced.

    Raises InvalidInput, which names file and field.
    """
    if not folder:
        return shipped()
    own = tuple(_read(path) for path in _files(folder))
    names = [family.family for family in own]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(folder, f"the family {twice[0]} is in two files: keep one of them")
    for name in sorted({family.family for family in shipped()} & set(names)):
        log.info("the family %s of %s replaces the one that is shipped", name, folder)
    try:
        return merged(shipped(), own)
    except ValueError as error:
        raise InvalidInput(folder, str(error)) from error


def _files(folder: str) -> list[Path]:
    try:
        # A mounted ConfigMap has files beginning with ".." beside the real ones.
        found = [p for p in Path(folder).iterdir() if p.suffix in (".yaml", ".yml") and not p.name.startswith(".")]
    except OSError as error:
        raise InvalidInput(folder, f"cannot be read: {error.strerror or error}: give a folder of YAML files") from error
    return sorted(found)


def _read(path: Path) -> Family:
    documents = read_values(str(path))
    if not documents:
        raise InvalidInput(str(path), f"is empty: {_FORM}")
    if len(documents) != 1:
        raise InvalidInput(str(path), f"has {len(documents)} documents: write one family in each file")
    if not isinstance(documents[0], dict):
        what = "a list" if isinstance(documents[0], list) else "a single value"
        raise InvalidInput(str(path), f"is {what}, not a family: {_FORM}")
    try:
        family = Family.model_validate(documents[0])
    except ValidationError as error:
        first = problems(error, Family)[0]
        raise InvalidInput(f"{path}: {first.path}" if first.path else str(path), first.message) from None
    for number, profile in enumerate(family.profiles):
        for position, setting in enumerate(profile.settings):
            for field, message in _wrong(setting):
                raise InvalidInput(f"{path}: profiles[{number}].settings[{position}].{field}", message)
    return family


def _wrong(setting: ProfileSetting) -> Iterator[tuple[str, str]]:
    """What only conditions and engines can say: (field, what is wrong)."""
    for position, need in enumerate(setting.needs):
        yield from _wrong_need(f"needs[{position}]", need)
    stated = [("name", "value", setting.name, setting.value)]
    if setting.older is not None:
        stated.append(("older.name", "older.value", setting.older.name, setting.older.value))
    engine = unknown_release()
    for name_path, value_path, name, value in stated:
        field = engine.fields.get(name) or engine.variables.get(name)
        if field is None:
            near = nearest(name, sorted({*engine.fields, *engine.variables}), likeness=0.8)
            hint = f", did you mean {near}?" if near else ": write SGLang's own name of a field or variable"
            yield name_path, f"no known release of SGLang has {name}{hint}"
        elif value is not None:
            try:
                typed(field, value)
            except ValueError as error:
                yield value_path, f"{name} {error}"


def _wrong_need(path: str, need: str | dict[str, int]) -> Iterator[tuple[str, str]]:
    names: Sequence[str] = [need] if isinstance(need, str) else list(need)
    if len(names) != 1:
        yield path, "must name one condition: write the others as entries of their own"
        return
    name = names[0]
    if name not in NAMES:
        near = nearest(name, sorted(NAMES))
        hint = f"did you mean {near}?" if near else f"known are {', '.join(sorted(NAMES))}"
        yield path, f"there is no condition {name}: {hint}"
    elif (name in WITH_LIMIT) == isinstance(need, str):
        example = f"{{{name}: 512}}" if name in WITH_LIMIT else name
        yield path, f"the condition {name} is written {example}"
