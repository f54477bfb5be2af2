"""``spec.template`` against the fields that Kubernetes has: a name that is misspelt would only fail when pods are made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from vlm_api.base import IMAGE
from vlm_api.names import MAIN_CONTAINER
from vlm_api.plan import Finding, Severity
from vlm_api.problems import nearest
from vlm_operator.errors import InvalidInput

_ROOT: Final = "V1PodTemplateSpec"
# Where people put fields of these by mistake: type -> its place.
_PLACES: Final = {"V1PodSpec": "spec.template.spec", "V1Container": "an entry of spec.template.spec.containers"}
# As like as a slip of the keyboard; less like is perhaps a field of a newer Kubernetes.
_MISSPELT: Final = 0.75
# As the API server reads it, which answers anything else with an internal error instead of a refusal.
_QUANTITY: Final = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?",
)
_SCALARS: Final = {
    "str": ((str,), "must be text: put it in quotes"),
    "int": ((int,), "must be a whole number, without quotes"),
    "float": ((int, float), "must be a number, without quotes"),
    "bool": ((bool,), "must be true or false, without quotes"),
}


@cache
def _known() -> Mapping[str, Any]:
    data: dict[str, Any] = json.loads(files(__package__).joinpath("fields.json").read_text("utf-8"))
    return data


def check(template: Mapping[str, Any]) -> list[Finding]:
    """Raises InvalidInput for a field that is misspelt, stands in the wrong place or has a value of the wrong type.

    A field that is like none of those known here is a finding: a newer Kubernetes may have it. Values are not repeated,
    since they may be secrets. The fields are those of ``fields.json`` (see ``generate``).
    """
    findings = list(_check(template, _ROOT, "spec.template"))
    for position, container in enumerate((template.get("spec") or {}).get("containers") or []):
        if container.get("name") == MAIN_CONTAINER and container.get("image") is not None:
            raise InvalidInput(
                f"spec.template.spec.containers[{position}].image",
                "the plan is made for the version that the engine's image holds: set spec.engine.image instead",
            )
    return findings


def _check(value: Any, kind: str, path: str) -> Iterator[Finding]:
    if value is None:  # "remove this field", in a strategic merge
        return
    if kind == "image":
        if not isinstance(value, str) or not re.fullmatch(IMAGE, value):
            raise InvalidInput(
                path, "must be an image such as lmsysorg/sglang:v0.5.23, without spaces, scheme and user"
            )
    elif kind == "quantity":
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not _QUANTITY.fullmatch(str(value)):
            raise InvalidInput(path, f"is {json.dumps(value)}, but must be a quantity such as 16Gi, 500m or 2")
    elif kind in _SCALARS:
        wanted, sentence = _SCALARS[kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
            raise InvalidInput(path, sentence)
    elif kind.startswith("["):
        if not isinstance(value, list):
            raise InvalidInput(path, "must be a list")
        for position, item in enumerate(value):
            yield from _check(item, kind[1:-1], f"{path}[{position}]")
    elif kind in ("map", "quantities") or kind in _known()["types"]:
        if not isinstance(value, Mapping):
            raise InvalidInput(path, "must be a map of fields to values")
        if kind == "quantities":
            for name, item in value.items():
                if not name.startswith("$"):  # a directive of the strategic merge
                    yield from _check(item, "quantity", f"{path}.{name}")
        elif kind != "map":
            yield from _fields(value, kind, path)


def _fields(value: Mapping[str, Any], kind: str, path: str) -> Iterator[Finding]:
    fields: Mapping[str, str] = _known()["types"][kind]
    for name, item in value.items():
        if name in fields:
            yield from _check(item, fields[name], f"{path}.{name}")
        elif not name.startswith("$"):  # a directive of the strategic merge
            yield _unknown(name, kind, fields, path)


def _unknown(name: str, kind: str, fields: Mapping[str, str], path: str) -> Finding:
    """Raises InvalidInput where it is clear what was meant."""
    if near := nearest(name, sorted(fields), likeness=_MISSPELT):
        raise InvalidInput(f"{path}.{name}", f"unknown field, did you mean {near}?")
    for other, place in _PLACES.items():
        if other != kind and name in _known()["types"][other]:
            raise InvalidInput(f"{path}.{name}", f"unknown field here: it belongs into {place}")
    return Finding(
        severity=Severity.WARNING,
        reason="TemplateFieldUnknown",
        message=f"Kubernetes {_known()['kubernetes']} has no field {name} there, so the API server refuses the pods unless "
        "it is newer and has it: correct or remove it",
        path=f"{path}.{name}",
    )
