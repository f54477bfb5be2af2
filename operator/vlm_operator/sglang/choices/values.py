"""Values of settings, from a manifest or a command line, and whether they can be right.

Each function raises ValueError with the rest of a sentence that begins with the setting's name: "must be at least 1".
"""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final

from vlm_api.problems import without_credentials
from vlm_operator.sglang.catalogue.fields import Field
from vlm_operator.sglang.catalogue.releases import bounds

# SGLang's own suffixes for token counts: 25.6k, 1Ki (human_readable_int in srt/utils/common.py).
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")
_FACTORS: Final = {
    **{suffix: 1000**power for power, suffix in enumerate("kMGT", 1)},
    **{f"{suffix}i": 1024**power for power, suffix in enumerate("KMGT", 1)},
}
_TRUE: Final = ("true", "1", "yes", "y")
_FALSE: Final = ("false", "0", "no", "n")
_EXCERPT: Final = 80


def typed(field: Field, value: Any) -> Any:
    """A JSON value, as ``spec.engine.settings`` has it, checked against the field's type, choices and range."""
    if value is None:
        raise ValueError("has no value: give it one, or remove it to leave it to the engine")
    if field.many in ("+", "*"):
        if not isinstance(value, list):
            raise ValueError(f"must be a list, not {shown(value)}")
        if not value and field.many == "+":
            raise ValueError("must have at least one entry: remove it to leave it to the engine")
        return [_checked(field, _scalar(field, item)) for item in value]
    return _checked(field, _scalar(field, value))


def from_words(field: Field, words: Sequence[str]) -> Any:
    """The words that follow a flag on the command line."""
    if field.many in ("+", "*"):
        return [_checked(field, _parsed(field, word)) for word in words]
    return _checked(field, _parsed(field, words[0] if words else ""))


def from_environment(field: Field, text: str) -> Any:
    """An environment variable's text. The engine would warn about one that it cannot read, and take its default."""
    return _checked(field, _parsed(field, text))


def shown(value: Any) -> str:
    """A value for a message, in JSON, cut where it is long, and without the user and password of a URL."""
    text = without_credentials(json.dumps(value, ensure_ascii=False, default=str))
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"


def _scalar(field: Field, value: Any) -> Any:
    variable = not field.flag
    match field.kind, value:
        case "bool", bool():
            if value is False and not field.negative and field.flag and field.default is not False:
                raise ValueError("can only be true, because SGLang has no flag for false: remove it")
            return value
        case "bool", 0 | 1 if variable:
            return bool(value)
        case "int" | "size", int() if not isinstance(value, bool):
            return value
        case "size", str() if _SIZE.fullmatch(value):
            return _parsed(field, value)
        case "float", int() | float() if not isinstance(value, bool) and math.isfinite(value):
            return value
        case "str", str():
            return value
        case "str", bool() | int() | float() if variable:  # the type of such a variable is not known
            return value
        case "json", dict() | list():
            return value
        case "json", str():
            return _parsed(field, value)
    raise ValueError(f"must be {_NAMES[field.kind]}, not {shown(value)}" + _quotes(field, value))


_NAMES: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "size": "a whole number",
    "float": "a number",
    "str": "text",
    "json": "a JSON object or list",
}


def _quotes(field: Field, value: Any) -> str:
    """The usual slip in YAML, where there is one."""
    if field.kind == "str" and isinstance(value, bool | int | float):
        return ": put it into quotes"
    if field.kind != "str" and isinstance(value, str):
        try:
            _parsed(field, value)
        except ValueError:
            return ""
        return ": remove the quotes"
    return ""


def _parsed(field: Field, text: str) -> Any:
    wrong = ValueError(f"must be {_NAMES[field.kind]}, not {shown(text)}")
    match field.kind:
        case "str":
            return text
        case "bool":
            if text.lower() in _TRUE or text.lower() in _FALSE:
                return text.lower() in _TRUE
            raise wrong
        case "json":
            try:
                return json.loads(text)
            except ValueError:
                raise wrong from None
        case "size" if found := _SIZE.fullmatch(text.strip()):
            return int(float(found[1]) * _FACTORS[found[2]])
        case "float":
            try:
                number = float(text)
            except ValueError:
                raise wrong from None
            if not math.isfinite(number):
                raise wrong
            return number
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text):
        raise wrong
    return int(text)


def _checked(field: Field, value: Any) -> Any:
    if field.choices and value not in field.choices:
        listed = ", ".join(str(choice) for choice in field.choices)
        raise ValueError(f"must be one of {listed}, not {shown(value)}")
    limits = bounds(field.name)
    if limits is not None and isinstance(value, int | float) and not isinstance(value, bool):
        problem = limits.problem(value)
        if problem:
            raise ValueError(f"{problem}, not {shown(value)}")
    return value
