"""The base of all API types: camelCase names, no unknown fields, and rules that the API server enforces too.

Both enforcers must agree on every input, so these types are as strict as the CRD's schema: ``"2"`` is not a number,
``"yes"`` is not a boolean, and a null field counts as unset.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


@dataclass(frozen=True)
class Rule:
    """A rule about several fields, enforced twice.

    The API server evaluates ``cel`` on every write (``x-kubernetes-validations``); ``holds`` is the same rule in Python.
    ``message_cel`` adds values to the message; if it fails, the server uses ``message``. ``field`` is the camelCase field
    that the error points at.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    message_cel: str | None = None
    sentence: Callable[[Any], str] | None = None
    field: str | None = None


def _api_name(field: str) -> str:
    """``memory_mib`` -> ``memoryMiB``: camelCase, with the unit as Kubernetes spells it."""
    return to_camel(field).replace("Mib", "MiB")


class ApiModel(BaseModel):
    """An API type: immutable, camelCase in manifests, and an unknown field is an error."""

    model_config = ConfigDict(
        alias_generator=_api_name, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """Like the API server: an empty ``workload:`` in YAML means that it is unset."""
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
        """The value as in a manifest: camelCase, JSON types, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


Model = TypeVar("Model", bound=ApiModel)

if TYPE_CHECKING:
    Partial = Annotated[Model, ...]
else:

    class Partial:
        """``Partial[Engine]``: the fields of a type, none of them required and none with a default.

        What is unset is taken from somewhere else. A default here would be written by the API server and look like a choice.
        """

        def __class_getitem__(cls, model: type[ApiModel]) -> type[ApiModel]:
            """The type, made of the fields' own annotations. Rules about several fields are left out: they hold for the whole."""
            fields = {
                name: (
                    Annotated[(info.annotation, *info.metadata, "")] | None,
                    Field(None, description=info.description),
                )
                for name, info in model.model_fields.items()
            }
            return create_model(f"Partial{model.__name__}", __base__=ApiModel, __doc__=model.__doc__, **fields)


# A size in bytes as a Kubernetes quantity, above zero. No m, u and n: fractions of a byte are always a mistake.
QUANTITY = (
    r"^\+?(0*[1-9][0-9]*(\.[0-9]*)?|0*\.[0-9]*[1-9][0-9]*)"
    r"([KMGTPE]i|[kMGTPE]|[eE]\+?[0-9]{1,2})?$"
)
PERCENT = r"^(0|[1-9][0-9]{0,3})%$"
PERCENT_UP_TO_100 = r"^(0|[1-9][0-9]?|100)%$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

# An image reference: registry with port, path, tag, digest. Without scheme, user and password, which every plan and
# status would show.
IMAGE = (
    r"([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9a-fA-F:]+\])(:[0-9]+)?(/[A-Za-z0-9._-]+)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@[A-Za-z0-9+._-]+:[a-fA-F0-9]+)?"
)
# A path without `..`.
NO_PARENT = r"^([^./][^/]*|\.[^./][^/]*|\.\.[^/]+|\.)?(/([^./][^/]*|\.[^./][^/]*|\.\.[^/]+|\.)?)*$"

# Any JSON value. In the CRD: x-kubernetes-preserve-unknown-fields.
Json = Annotated[Any, Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "nullable": True})]


def between(low: int, high: int) -> Any:
    """Inclusive bounds of an integer. ``"2"`` is refused, as in the API server."""
    return Field(strict=True, ge=low, le=high)


@dataclass(frozen=True)
class Matches:
    """A string's format, with a readable message instead of the regular expression.

    The expression is valid in RE2 and in Rust's regex, and has no single quote.
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
        result = handler(schema)
        rule = {"rule": f"self.matches(r'{self.pattern}')", "message": self.sentence}
        return result | {"x-kubernetes-validations": [*result.get("x-kubernetes-validations", []), rule]}


@dataclass(frozen=True)
class UniqueBy:
    """A list of unique items, by one field or by value, so that server-side apply merges item by item.

    Like the API server (``x-kubernetes-list-type``), it refuses duplicates.
    """

    key: str | None = None

    def _check(self, items: list[Any]) -> list[Any]:
        identities = set()
        for item in items:
            identity = getattr(item, self.key) if self.key else item
            if identity in identities:
                raise PydanticCustomError("duplicate", "duplicate {value}: keep one of them", {"value": identity})
            identities.add(identity)
        return items

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        if self.key is None:
            return handler(schema) | {"x-kubernetes-list-type": "set"}
        return handler(schema) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [self.key]}


MAX_INT_OR_STRING = 32


def _int_or_string(pattern: str, minimum: int, maximum: int, sentence: str) -> Any:
    """An integer within bounds, or a string with a pattern, like Kubernetes' IntOrString."""

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
    Matches(DNS_SUBDOMAIN, "must be an object's name: lower-case letters, digits, '-' and '.', such as my-claim"),
]
Token = Annotated[str, Field(min_length=1, max_length=253), Matches(r"^[^\s]+$", "must not contain spaces")]
