"""What every type of the API builds on: camelCase names, no unknown fields, and rules that hold in the API server too.

Both enforcers must agree on every input, so this side is as strict as a CRD's schema: ``"2"`` is no number, ``"yes"``
is no boolean, and a field that is null counts as left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True)
class Rule:
    """One sentence about several fields at once, enforced twice.

    ``cel`` is what the API server evaluates on every write (``x-kubernetes-validations``); ``holds`` is the same rule
    for a manifest that never reaches an API server. ``message_cel`` puts the values into the sentence; the server falls
    back to ``message`` where it fails. ``field`` is the camelCase field that the error points at.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    message_cel: str | None = None
    sentence: Callable[[Any], str] | None = None
    field: str | None = None


def _api_name(field: str) -> str:
    """``memory_mib`` -> ``memoryMiB``: camelCase, with the unit spelt as Kubernetes spells it."""
    return to_camel(field).replace("Mib", "MiB")


class ApiModel(BaseModel):
    """A type of the API: immutable, camelCase outside, and a field that does not exist is an error, never dropped."""

    model_config = ConfigDict(
        alias_generator=_api_name,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, data: Any) -> Any:
        """As the API server does it: an empty ``workload:`` in YAML is no workload at all."""
        if not isinstance(data, dict) or None not in data.values():
            return data
        return {k: v for k, v in data.items() if v is not None}

    @model_validator(mode="after")
    def _rules_hold(self) -> ApiModel:
        for rule in self.RULES:
            if not rule.holds(self):
                text = rule.sentence(self) if rule.sentence else rule.message
                raise PydanticCustomError("rule", "{text}", {"text": text, "field": rule.field})
        return self

    def to_api(self) -> dict[str, Any]:
        """The value as it stands in a manifest: camelCase, JSON types only, unset fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


# A size in bytes as Kubernetes writes it, above zero. No m, u and n: nobody means a thousandth of a byte.
QUANTITY = (
    r"^\+?(0*[1-9][0-9]*(\.[0-9]*)?|0*\.[0-9]*[1-9][0-9]*)"
    r"([KMGTPE]i|[kMGTPE]|[eE]\+?[0-9]{1,2})?$"
)
PERCENT = r"^(0|[1-9][0-9]{0,3})%$"
PERCENT_UP_TO_100 = r"^(0|[1-9][0-9]?|100)%$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

# An image as container runtimes take it: a registry with its port, a path, a tag, a digest. So it has no scheme and no
# user with a password, which every plan and status would show.
IMAGE = (
    r"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9a-fA-F:]+\])(:[0-9]+)?(/[A-Za-z0-9._-]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@[A-Za-z0-9+._-]+:[a-fA-F0-9]+)?"
)
# Steps of a path, none of which leads upwards.
NO_STEP_UP = r"^([^./][^/]*|\.[^./][^/]*|\.\.[^/]+|\.)?(/([^./][^/]*|\.[^./][^/]*|\.\.[^/]+|\.)?)*$"

# Anything JSON knows. The CRD says x-kubernetes-preserve-unknown-fields for it.
Json = Annotated[Any, Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "nullable": True})]


def between(low: int, high: int) -> Any:
    """Bounds of a whole number, both included. ``"2"`` is refused: the API server takes no text for a number."""
    return Field(strict=True, ge=low, le=high)


@dataclass(frozen=True)
class Matches:
    """A string's form, with a sentence instead of the bare expression that ``pattern`` in a schema would answer with.

    The expression stays within what RE2 and Rust's regex read alike, and has no single quote.
    """

    pattern: str
    sentence: str

    def _check(self, value: str) -> str:
        if not re.fullmatch(self.pattern, value):
            raise PydanticCustomError("form", "{text}", {"text": self.sentence})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        made = handler(schema)
        rule = {"rule": f"self.matches(r'{self.pattern}')", "message": self.sentence}
        return made | {"x-kubernetes-validations": [*made.get("x-kubernetes-validations", []), rule]}


@dataclass(frozen=True)
class UniqueBy:
    """A list whose items are told apart by one field (or by themselves), so that server-side apply merges item by item.

    The API server refuses an item that is there twice (``x-kubernetes-list-type``); so does this.
    """

    key: str | None = None

    def _check(self, items: list[Any]) -> list[Any]:
        seen = set()
        for item in items:
            identity = getattr(item, self.key) if self.key else item
            if identity in seen:
                raise PydanticCustomError("duplicate", "{value} is there twice: keep one of them", {"value": identity})
            seen.add(identity)
        return items

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        if self.key is None:
            return handler(schema) | {"x-kubernetes-list-type": "set"}
        return handler(schema) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}


MAX_INT_OR_STRING = 32


def _int_or_string(pattern: str, minimum: int, maximum: int, sentence: str) -> Any:
    """An integer within bounds, or a string of that pattern, as Kubernetes' IntOrString and quantities are."""

    def check(value: Any) -> int | str:
        if isinstance(value, int) and not isinstance(value, bool):
            valid = minimum <= value <= maximum
        else:
            valid = isinstance(value, str) and len(value) <= MAX_INT_OR_STRING and bool(re.fullmatch(pattern, value))
        if not valid:
            raise PydanticCustomError("form", "{text}", {"text": sentence})
        return cast("int | str", value)

    rule = f"type(self) == int ? self >= {minimum} && self <= {maximum} : self.matches(r'{pattern}')"
    schema: dict[str, Any] = {
        "x-kubernetes-int-or-string": True,
        "maxLength": MAX_INT_OR_STRING,
        "x-kubernetes-validations": [{"rule": rule, "message": sentence}],
    }
    return Annotated[int | str, PlainValidator(check), WithJsonSchema(schema)]


Quantity = _int_or_string(QUANTITY, 1, 2**53, "must be a size above zero, such as 16Gi, 500Mi or 2G")
Surge = _int_or_string(PERCENT, 0, 1000, "must be a whole number from 0 to 1000, or a percentage such as 25%")
Unavailable = _int_or_string(
    PERCENT_UP_TO_100, 0, 1000, "must be a whole number from 0 to 1000, or a percentage up to 100%"
)
Name = Annotated[
    str,
    Field(min_length=1, max_length=253),
    Matches(DNS_SUBDOMAIN, "must be the name of an object: lower-case letters, digits, '-' and '.', such as my-claim"),
]
Token = Annotated[str, Field(min_length=1, max_length=253), Matches(r"^[^\s]+$", "must not have spaces in it")]
