"""The shape of ``spec.template``: as much of a core/v1 PodTemplateSpec as the operator itself reads.

Everything else passes untouched and is checked by the API server when the pods are made. Null stands for "remove this
field" in a strategic merge, so it is allowed wherever a field may be removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string", "nullable": True}
TEXTS: Final[Schema] = {"type": "array", "nullable": True, "items": {"type": "string"}}
TEXT_MAP: Final[Schema] = {"type": "object", "nullable": True, "additionalProperties": TEXT}


def _object(*required: str, **properties: Schema) -> Schema:
    """A map that must have some fields, and whose other fields are free."""
    schema: Schema = {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
    if properties:
        schema["properties"] = properties
    return schema | ({"required": list(required)} if required else {})


def _list(items: Schema) -> Schema:
    return {"type": "array", "nullable": True, "items": {k: v for k, v in items.items() if k != "nullable"}}


def _by_name(items: Schema) -> Schema:
    """A list whose items have a name each, which the API server and the merge tell them apart by."""
    return _list(items) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


NAME: Final[Schema] = {"type": "string"}
_CONTAINERS = _by_name(
    _object(
        "name",
        name=NAME,
        image=TEXT,
        command=TEXTS,
        args=TEXTS,
        env=_list(_object("name", name=NAME, value=TEXT, valueFrom=_object())),
        resources=_object(limits=_object(), requests=_object()),
        volumeMounts=_list(_object("mountPath", mountPath=NAME, name=TEXT)),
        ports=_list(_object()),
        securityContext=_object(),
    )
)
_TERMS = _list(
    _object(matchExpressions=_list(_object(key=TEXT, operator=TEXT, values=TEXTS)), matchFields=_list(_object()))
)
_METADATA = _object(labels=TEXT_MAP, annotations=TEXT_MAP)
_SPEC = _object(
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
    volumes=_by_name(_object("name", name=NAME)),
    nodeSelector=TEXT_MAP,
    nodeName=TEXT,
    tolerations=_list(_object(key=TEXT, operator=TEXT, value=TEXT, effect=TEXT)),
    affinity=_object(
        nodeAffinity=_object(requiredDuringSchedulingIgnoredDuringExecution=_object(nodeSelectorTerms=_TERMS))
    ),
    imagePullSecrets=_list(_object("name", name=NAME)),
    securityContext=_object(),
)
# The two parts themselves cannot be removed: null leaves them out, here and in the API server.
POD_TEMPLATE: Final[Schema] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        part: {k: v for k, v in schema.items() if k != "nullable"}
        for part, schema in (("metadata", _METADATA), ("spec", _SPEC))
    },
}

_WORDS: Final = {
    "string": (str, "must be text: put it in quotes"),
    "array": (list, "must be a list"),
    "object": (dict, "must be a map"),
}


# More than any field of a pod has, and less than what pydantic can write out again.
MOST_LEVELS: Final = 64


def levels(value: Any) -> int:
    """How deep a JSON value is nested, counted up to MOST_LEVELS + 1."""
    found, below = 0, [value]
    while below and found <= MOST_LEVELS:
        found += 1
        parts = [each.values() if isinstance(each, dict) else each for each in below if isinstance(each, dict | list)]
        below = [part for each in parts for part in each]
    return found


def misshapen(value: Any, schema: Schema, path: str = "") -> tuple[str, str] | None:
    """Where a value is not shaped as the schema says, and what it must be; None where it is."""
    if value is None:
        return None if schema.get("nullable") else (path, _WORDS[schema["type"]][1])
    wanted, sentence = _WORDS[schema["type"]]
    if not isinstance(value, wanted):
        return path, sentence
    if isinstance(value, list):
        below = [(f"{path}[{i}]", each, schema["items"]) for i, each in enumerate(value)]
        found = next((found for each in below if (found := misshapen(each[1], each[2], each[0])) is not None), None)
        return found or (_twice(value, path) if "x-kubernetes-list-map-keys" in schema else None)
    if isinstance(value, dict):
        for field in schema.get("required", []):
            if value.get(field) is None:
                return f"{path}.{field}", "is required: give it a value"
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        below = [(f"{path}.{k}", v, s) for k, v in value.items() if (s := fields.get(k, others)) is not None]
    else:
        below = []
    return next((found for each in below if (found := misshapen(each[1], each[2], each[0])) is not None), None)


def _twice(items: list[dict[str, Any]], path: str) -> tuple[str, str] | None:
    names = [item["name"] for item in items]
    return next(
        (
            (f"{path}[{i}]", f'is the second with the name "{name}": keep one of them')
            for i, name in enumerate(names)
            if name in names[:i]
        ),
        None,
    )


def _shared(template: dict[str, Any]) -> tuple[str, str] | None:
    """A container and an init container of one name, which no pod may have. The schema cannot say it cheaply enough."""
    spec = template.get("spec") or {}
    names = {each["name"] for each in spec.get("containers") or []}
    return next(
        (
            (f".spec.initContainers[{i}]", f'has the name "{each["name"]}" of a container: give it another one')
            for i, each in enumerate(spec.get("initContainers") or [])
            if each["name"] in names
        ),
        None,
    )


@dataclass(frozen=True)
class _PodTemplateShape:
    """Both enforcers: the CRD gets the schema, and the types check against it."""

    def _check(self, value: dict[str, Any]) -> dict[str, Any]:
        value = {part: each for part, each in value.items() if each is not None}
        if levels(value) > MOST_LEVELS:
            raise PydanticCustomError("rule", f"is nested more than {MOST_LEVELS} levels deep, which no pod needs")
        if (found := misshapen(value, POD_TEMPLATE) or _shared(value)) is not None:
            raise PydanticCustomError("rule", "{text}", {"text": found[1], "field": found[0].removeprefix(".")})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(POD_TEMPLATE)


PodTemplate = Annotated[dict[str, Any], _PodTemplateShape()]
