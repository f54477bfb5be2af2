"""``spec.template`` against the fields that Kubernetes has: a name that is misspelt would only fail when pods are made."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from vlm_api.base import IMAGE
from vlm_api.names import MAIN_CONTAINER
from vlm_api.plan import Finding, warning
from vlm_api.problems import nearest
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.context import Context, Declared

_ROOT: Final = "V1PodTemplateSpec"
# Where people put fields of these by mistake: type -> its place.
_PLACES: Final = {"V1PodSpec": "spec.template.spec", "V1Container": "an entry of spec.template.spec.containers"}
# As like as a slip of the keyboard; less like is perhaps a field of a newer Kubernetes.
_MISSPELT: Final = 0.75
# As the API server reads it, which answers anything else with an internal error instead of a refusal.
_QUANTITY: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
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


def misspelt_fields(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """A field that is misspelt, in the wrong place or of the wrong type."""
    yield from (found for found in problems(context.spec.template) if isinstance(found, InvalidInput))


def unknown_fields(plan: CheckInput) -> Iterator[Finding]:
    """A field that resembles none of ``fields.json`` (see ``generate``): a newer Kubernetes may have it."""
    yield from (found for found in problems(plan.context.spec.template) if isinstance(found, Finding))


def problems(template: Mapping[str, Any]) -> Iterator[Finding | InvalidInput]:
    """What is wrong with a pod template. Values are not repeated, since they may be secret."""
    yield from _check(template, _ROOT, "spec.template")
    for position, container in enumerate((template.get("spec") or {}).get("containers") or []):
        if container.get("name") == MAIN_CONTAINER and container.get("image") is not None:
            yield InvalidInput(
                f"spec.template.spec.containers[{position}].image",
                "the plan depends on the release in the engine's image: set spec.engine.image instead",
            )


def _check(value: Any, kind: str, path: str) -> Iterator[Finding | InvalidInput]:
    if value is None:  # "remove this field", in a strategic merge
        return
    if kind == "image":
        if not isinstance(value, str) or not re.fullmatch(IMAGE, value):
            yield InvalidInput(
                path, "must be an image such as registry.example.com/sglang:v1.2.3, without spaces, scheme or user"
            )
    elif kind == "quantity":
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not _QUANTITY.fullmatch(str(value)):
            yield InvalidInput(path, f"is {json.dumps(value)}, but must be a quantity such as 16Gi, 500m or 2")
    elif kind in _SCALARS:
        wanted, sentence = _SCALARS[kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "bool"):
            yield InvalidInput(path, sentence)
    elif kind.startswith("["):
        if not isinstance(value, list):
            yield InvalidInput(path, "must be a list")
            return
        for position, item in enumerate(value):
            yield from _check(item, kind[1:-1], f"{path}[{position}]")
    elif kind in ("map", "quantities") or kind in _known()["types"]:
        if not isinstance(value, Mapping):
            yield InvalidInput(path, "must be a map of fields to values")
            return
        if kind == "quantities":
            for name, item in value.items():
                if not name.startswith("$"):  # a directive of the strategic merge
                    yield from _check(item, "quantity", f"{path}.{name}")
        elif kind != "map":
            yield from _fields(value, kind, path)


def _fields(value: Mapping[str, Any], kind: str, path: str) -> Iterator[Finding | InvalidInput]:
    fields: Mapping[str, str] = _known()["types"][kind]
    for name, item in value.items():
        if fields.get(name) == "str" and isinstance(item, str):
            continue  # most of what users write
        if name in fields:
            yield from _check(item, fields[name], f"{path}.{name}")
        elif not name.startswith("$"):  # a directive of the strategic merge
            yield _unknown(name, kind, fields, path)


def _unknown(name: str, kind: str, fields: Mapping[str, str], path: str) -> Finding | InvalidInput:
    """Refused if the intended field is clear."""
    if near := nearest(name, sorted(fields), likeness=_MISSPELT):
        return InvalidInput(f"{path}.{name}", f"unknown field, did you mean {near}?")
    for other, place in _PLACES.items():
        if other != kind and name in _known()["types"][other]:
            return InvalidInput(f"{path}.{name}", f"unknown field here: it belongs into {place}")
    return warning(
        FindingReason.TEMPLATE_FIELD_UNKNOWN,
        f"Kubernetes {_known()['kubernetes']} has no field {name} there, so the API server rejects the pods unless it is newer "
        "and has the field: correct or remove it",
        f"{path}.{name}",
    )
