"""What every type of the API builds on: camelCase names, no unknown fields, and rules that hold here and in the API server."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


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
        regex_engine="python-re",
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()

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


QUANTITY = (
    r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

# Anything JSON knows. The CRD says x-kubernetes-preserve-unknown-fields for it.
Json = Annotated[Any, Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


def _int_or_string(pattern: str, what: str) -> Any:
    """An integer, or a string of that pattern, as Kubernetes' IntOrString and quantities are."""

    def check(value: int | str) -> int | str:
        if not re.fullmatch(pattern, str(value)):
            raise PydanticCustomError("int_or_string", "{value} is not {what}", {"value": repr(value), "what": what})
        return value

    return Annotated[
        int | str,
        AfterValidator(check),
        Field(json_schema_extra={"x-kubernetes-int-or-string": True, "pattern": pattern}),
    ]


Quantity = _int_or_string(QUANTITY, "a quantity such as 16Gi, 500Mi or 2G")
CountOrPercent = _int_or_string(r"^[0-9]+%?$", "a number or a percentage such as 25%")
Name = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
Token = Annotated[str, Field(min_length=1, max_length=253)]
