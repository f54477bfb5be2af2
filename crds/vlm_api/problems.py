"""Validation errors in words: the field, its value, and what it must be."""

import difflib
import json
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

# Values below these fields may be secrets, so messages never repeat them.
SENSITIVE = (
    "spec.engine.env",
    "spec.engine.args",
    "spec.engine.settings",
    "spec.template",
    "spec.router.template",
    # References, in which users put the secret itself by mistake.
    "spec.model.tokenSecretRef",
    "spec.security.apiKeySecretRef",
)
MAX_SHOWN = 80


@dataclass(frozen=True)
class Problem:
    """One error in a manifest."""

    path: str
    """The field, such as ``spec.engine.env[0].name``; empty for the whole document."""
    message: str
    """The error with the value (unless it may be a secret) and the next step."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Every error of a validation of ``model``, in field order."""
    return [_problem(each, model) for each in error.errors(include_url=False)]


def field_path(location: Sequence[int | str]) -> str:
    """``("spec", "engine", "env", 0, "name")`` -> ``spec.engine.env[0].name``."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def nearest(word: str, known: Sequence[str], likeness: float = 0.6) -> str | None:
    """The most similar known word, ignoring case; None if none is similar."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=likeness)
    return by_lower[near[0]] if near else None


def _problem(error: Any, model: type[BaseModel]) -> Problem:
    location, context = error["loc"], error.get("ctx", {})
    path = field_path(location)
    if error["type"] == "rule" and context.get("field"):
        path = f"{path}.{context['field']}" if path else context["field"]
    return Problem(path, _message(error, path, model))


def _message(error: Any, path: str, model: type[BaseModel]) -> str:
    kind, value, location, context = error["type"], error["input"], error["loc"], error.get("ctx", {})
    if kind in ("rule", "duplicate"):
        return str(error["msg"])
    if kind == "missing":
        return "is required: set it"
    if kind == "extra_forbidden":
        known = _field_names(model, location[:-1])
        near = nearest(str(location[-1]), known)
        return f"unknown field, did you mean {near}?" if near else f"unknown field, must be one of {', '.join(known)}"
    if kind == "enum":
        allowed = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        near = nearest(value, allowed, likeness=0.75) if isinstance(value, str) else None
        hint = f", did you mean {near}?" if near else _quoting(value, allowed)
        return f"{_given(value, path)}must be one of {', '.join(allowed)}{hint}"
    return f"{_given(value, path)}{_demand(kind, context, error['msg'])}"


def _demand(kind: str, context: dict[str, Any], fallback: str) -> str:
    """What the value must be."""
    if kind == "form":
        return str(context["text"])
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}"
    if kind == "less_than_equal":
        return f"must be at most {context['le']}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "string_too_long":
        return f"must have at most {context['max_length']} characters"
    if kind == "too_long":
        return f"must have at most {context['max_length']} entries"
    return TYPES.get(kind, fallback)


TYPES = {
    "int_type": "must be a whole number, without quotes",
    "bool_type": "must be true or false, without quotes",
    "string_type": "must be text: put it in quotes",
    "list_type": "must be a list",
    "dict_type": "must be a map of names to values",
    "model_type": "must be a map of fields to values",
    "model_attributes_type": "must be a map of fields to values",
}


def _given(value: Any, path: str) -> str:
    """``is "20GB", but `` if the value can be shown."""
    if re.sub(r"^spec\.pools\[\d+\]", "spec", path).startswith(SENSITIVE) or isinstance(value, (dict, list)):
        return ""
    shown = without_credentials(json.dumps(value, ensure_ascii=False, default=str))
    return f"is {shown}, but " if len(shown) <= MAX_SHOWN else ""


def without_credentials(text: str) -> str:
    """The text with user and password removed from URLs. Passwords may contain slashes."""
    return re.sub(r"(?<=://)[^\s\"]*@", "[redacted]@", text)


def _quoting(value: Any, allowed: Sequence[str]) -> str:
    """YAML reads Off without quotes as false: suggest quotes."""
    if value is False and "Off" in allowed:
        return ': YAML reads Off without quotes as false, write "Off"'
    return ""


def _field_names(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The fields of the type at a location, as in a manifest."""
    here: type[BaseModel] | None = model
    for part in location:
        if here is None or isinstance(part, int):
            continue
        field = next((f for name, f in here.model_fields.items() if (f.alias or name) == part), None)
        here = _model_in(field.annotation) if field else None
    return [field.alias or name for name, field in here.model_fields.items()] if here else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside ``X | None``, ``list[X]`` or ``Annotated[X, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in typing.get_args(annotation) if (found := _model_in(part))), None)
