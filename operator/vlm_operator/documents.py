"""YAML and JSON files -> JSON values, parsed like kubectl; refused if a value would be lost."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from vlm_operator.errors import InvalidInput

Document = dict[str, Any]
DUPLICATE_KEY: Final = 'duplicate key "{}": keep one of them'


def read_documents(file: str) -> list[Document]:
    """Every object in a file (``-``: standard input), in order. A List counts as its items.

    Raises InvalidInput with file and position for anything but Kubernetes objects in YAML or JSON.
    """
    name = _name(file)
    values = read_values(file)
    if not values:
        raise InvalidInput(name, "is empty: give it a manifest with apiVersion, kind, metadata and spec")
    documents: list[Document] = []
    for number, value in enumerate(values, 1):
        place = name if len(values) == 1 else f"{name}, document {number}"
        documents += _objects(value, place)
    return documents


def read_values(file: str) -> list[Any]:
    """Every document in a file. Raises InvalidInput if it is neither YAML nor JSON."""
    name = _name(file)
    return [value for value in _parse(_read(file, name), name) if value is not None]


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _read(file: str, name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(name, f"cannot read it: {error.strerror or error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(name, f"is not UTF-8 (byte {error.start + 1}): save it as UTF-8") from error


def _parse(text: str, name: str) -> list[Any]:
    try:
        if text.lstrip().startswith("{"):
            try:
                return [json.loads(text, object_pairs_hook=_unique)]
            except json.JSONDecodeError:  # YAML's own braces, or several documents
                pass
        # Refuse what only YAML has: NaN, sets, bytes, recursive values.
        return [json.loads(json.dumps(each, allow_nan=False)) for each in yaml.load_all(text, Loader=_Loader)]
    except yaml.YAMLError as error:
        raise InvalidInput(name, _yaml_sentence(error)) from error
    except RecursionError as error:
        raise InvalidInput(name, "is nested too deeply for a manifest") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(name, f"has a value that JSON does not support ({error}): put it in quotes") from error


def _yaml_sentence(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"is not YAML: {' '.join(str(error).split())}"
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{' '.join((error.problem or 'not YAML').split())}"


def _objects(value: Any, place: str) -> Iterator[Document]:
    """The document itself, or the items of a List. Items of a typed list (``NodeList``) inherit its kind."""
    if not isinstance(value, dict):
        raise InvalidInput(place, "is not a Kubernetes object: give it apiVersion, kind, metadata and spec")
    kind = value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in value):
        yield value
        return
    items = value["items"] if value["items"] is not None else []
    if not isinstance(items, list):
        raise InvalidInput(f"{place}, items", "must be a list")
    inherited = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise InvalidInput(f"{place}, items[{number}]", "is not a Kubernetes object")
        yield {**inherited, **item}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. A duplicate key is an error, as in YAML."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise yaml.YAMLError(DUPLICATE_KEY.format(key))
        result[key] = value
    return result


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as kubectl reads it: no dates, no sexagesimal numbers, 2.0 is 2, and no duplicate keys."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        first: [(tag, form) for tag, form in resolvers if tag.rpartition(":")[2] not in ("int", "float", "timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in keys:
                    raise yaml.MarkedYAMLError(problem=DUPLICATE_KEY.format(key.value), problem_mark=key.start_mark)
                keys.add(key.value)
        return super().construct_mapping(node, deep=deep)  # type: ignore[no-any-return]

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        value: float = self.construct_yaml_float(node)
        return int(value) if value.is_integer() and abs(value) < 2**63 else value


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+0123456789."),
)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_number)
