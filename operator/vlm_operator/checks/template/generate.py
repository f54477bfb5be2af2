"""Writes ``fields.json``, the fields of a pod template, from the installed Kubernetes client."""

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from kubernetes import client

FIELDS: Final = Path(__file__).parent / "fields.json"
_SCALARS: Final = {"str": "str", "int": "int", "float": "float", "bool": "bool", "datetime": "str"}
# Image references, by type and field.
_IMAGES: Final = frozenset(
    {("V1Container", "image"), ("V1EphemeralContainer", "image"), ("V1ImageVolumeSource", "reference")}
)
# Text in the client, and a number as well in the API.
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})
# Maps whose values are quantities, wherever they stand.
_AMOUNTS: Final = frozenset({"limits", "requests", "overhead"})


def types() -> dict[str, dict[str, str]]:
    """Type -> field -> kind: a scalar, ``image``, ``quantity``, ``quantities`` (a map of them), ``map``, ``any``, another type,
    or ``[kind]`` for a list."""
    found: dict[str, dict[str, str]] = {}
    waiting = ["V1PodTemplateSpec"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        model: Any = getattr(client, name)
        declared = {model.attribute_map[attribute]: kind for attribute, kind in model.openapi_types.items()}
        found[name] = {field: _special(name, field) or _kind(kind) for field, kind in declared.items()}
        waiting += [inner for kind in found[name].values() if (inner := kind.strip("[]")).startswith("V")]
    return found


def _special(name: str, field: str) -> str | None:
    if field in _AMOUNTS:
        return "quantities"
    return "image" if (name, field) in _IMAGES else "quantity" if field in _QUANTITIES else None


def _kind(declared: str) -> str:
    # Older clients write list and dict( in lower case.
    if listed := re.fullmatch(r"[Ll]ist\[(.+)\]", declared):
        return f"[{_kind(listed[1])}]"
    if declared.startswith(("dict(", "Dict[")):
        return "map"
    return _SCALARS.get(declared, "any" if declared == "object" else declared)


def text() -> str:
    """The whole file. The client's major version is the minor one of the Kubernetes that it was made from."""
    release = f"1.{version('kubernetes').partition('.')[0]}"
    return json.dumps({"kubernetes": release, "types": types()}, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FIELDS.write_text(text(), encoding="utf-8")
