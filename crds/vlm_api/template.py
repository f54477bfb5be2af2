"""The schema of ``spec.template``: the parts of a core/v1 PodTemplateSpec that the operator reads.

Other fields are passed through; the API server checks them when pods are created. Null removes a field in a strategic
merge, so it is allowed wherever a field may be removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from vlm_api.names import MAIN_CONTAINER

Schema = dict[str, Any]

# List field -> the keys that identify an entry for the API server (`listMapKey` in k8s.io/api/core/v1/types.go). The first one
# is required in a patch. Field names are unambiguous inside a pod template.
LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "schedulingGates": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
KEY_DEFAULTS: Final[Mapping[str, str]] = {"protocol": "TCP"}
# Maps with free keys instead of fields: a label may be called "env".
FREE_MAPS: Final = frozenset({"labels", "annotations", "nodeSelector"})
# Lists whose entries have no key: the user's are added to ours.
APPENDED: Final = frozenset({"tolerations"})
# Entries that are never merged field by field.
REPLACED_WHOLE: Final = frozenset({"env", "volumeMounts"})

# Bounds far above what pods have; the whole spec has one of its own, ``spec.MAX_SPEC_BYTES``.
MAX_TEXT_LENGTH: Final = 131_072
MAX_NAME_LENGTH: Final = 4096
MAX_ENTRIES: Final = 256
MAX_WORDS: Final = 1024
MAX_VARIABLES: Final = 4096

TEXT: Final[Schema] = {"type": "string", "nullable": True, "maxLength": MAX_TEXT_LENGTH}
TEXTS: Final[Schema] = {
    "type": "array",
    "nullable": True,
    "maxItems": MAX_WORDS,
    "items": {"type": "string", "maxLength": MAX_TEXT_LENGTH},
}
TEXT_MAP: Final[Schema] = {
    "type": "object",
    "nullable": True,
    "maxProperties": MAX_ENTRIES,
    "additionalProperties": TEXT,
}


def _object(*required: str, **properties: Schema) -> Schema:
    """A map with some required fields and any others."""
    schema: Schema = {"type": "object", "nullable": True, "x-kubernetes-preserve-unknown-fields": True}
    if properties:
        schema["properties"] = properties
    return schema | ({"required": list(required)} if required else {})


def _list(items: Schema, most: int = MAX_ENTRIES) -> Schema:
    return {
        "type": "array",
        "nullable": True,
        "maxItems": most,
        "items": {k: v for k, v in items.items() if k != "nullable"},
    }


def _by_name(items: Schema) -> Schema:
    """A list whose items are identified by name, in the API server and in the merge."""
    return _list(items) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


NAME: Final[Schema] = {"type": "string", "maxLength": MAX_NAME_LENGTH}
_CONTAINERS = _by_name(
    _object(
        "name",
        name=NAME,
        image=TEXT,
        command=TEXTS,
        args=TEXTS,
        env=_list(_object("name", name=NAME, value=TEXT, valueFrom=_object()), MAX_VARIABLES),
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
# metadata and spec cannot be removed: null means unset, here and in the API server.
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


# Deeper than any pod, and less than what pydantic can serialize.
MAX_LEVELS: Final = 64


def levels(value: Any) -> int:
    """The depth of a JSON value, counted up to MAX_LEVELS + 1."""
    depth, below = 0, [value]
    while below and depth <= MAX_LEVELS:
        depth += 1
        parts = [each.values() if isinstance(each, dict) else each for each in below if isinstance(each, dict | list)]
        below = [part for each in parts for part in each]
    return depth


# Keyword of the schema -> what it counts.
_BOUNDS: Final = {"maxLength": "characters", "maxItems": "entries", "maxProperties": "entries"}


def schema_error(value: Any, schema: Schema, path: str = "") -> tuple[str, str] | None:
    """The path of the first value that does not match the schema, and what it must be; None if all match."""
    if value is None:
        return None if schema.get("nullable") else (path, _WORDS[schema["type"]][1])
    wanted, sentence = _WORDS[schema["type"]]
    if not isinstance(value, wanted):
        return path, sentence
    for bound, what in _BOUNDS.items():
        if len(value) > schema.get(bound, len(value)):
            return path, f"has {len(value)} {what}, but must have at most {schema[bound]}"
    if isinstance(value, str):
        return None
    if isinstance(value, list):
        for i, each in enumerate(value):
            if (error := schema_error(each, schema["items"], f"{path}[{i}]")) is not None:
                return error
        return _duplicate_name(value, path) if "x-kubernetes-list-map-keys" in schema else None
    for field in schema.get("required", []):
        if value.get(field) is None:
            return f"{path}.{field}", "is required: set it"
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    for key, each in value.items():
        below = fields.get(key, others)
        if below is not None and (error := schema_error(each, below, f"{path}.{key}")) is not None:
            return error
    return None


def _duplicate_name(items: list[dict[str, Any]], path: str) -> tuple[str, str] | None:
    seen: set[str] = set()
    for i, name in enumerate(item["name"] for item in items):
        if name in seen:
            return f"{path}[{i}]", f'duplicate name "{name}": keep one of them'
        seen.add(name)
    return None


def _shared_name(template: dict[str, Any]) -> tuple[str, str] | None:
    """A container and an init container with the same name. As a CEL rule this would cost too much."""
    spec = template.get("spec") or {}
    names = {each["name"] for each in spec.get("containers") or []}
    return next(
        (
            (f".spec.initContainers[{i}]", f'has the same name "{each["name"]}" as a container: rename one of them')
            for i, each in enumerate(spec.get("initContainers") or [])
            if each["name"] in names
        ),
        None,
    )


@dataclass(frozen=True)
class _PodTemplateShape:
    """The CRD contains the schema; the types check against it."""

    def _check(self, value: dict[str, Any]) -> dict[str, Any]:
        value = {part: each for part, each in value.items() if each is not None}
        if levels(value) > MAX_LEVELS:
            raise PydanticCustomError("rule", f"is nested more than {MAX_LEVELS} levels deep: remove levels")
        if (error := schema_error(value, POD_TEMPLATE) or _shared_name(value)) is not None:
            raise PydanticCustomError("rule", "{text}", {"text": error[1], "field": error[0].removeprefix(".")})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(POD_TEMPLATE)


PodTemplate = Annotated[dict[str, Any], _PodTemplateShape()]


def main_container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The engine's container in ``spec.template``; empty if the user wrote none."""
    containers: list[Mapping[str, Any]] = (template.get("spec") or {}).get("containers") or []
    return next((container for container in containers if container["name"] == MAIN_CONTAINER), {})
