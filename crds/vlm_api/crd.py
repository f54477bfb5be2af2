"""The CustomResourceDefinition, generated from the types.

Kubernetes requires a *structural* schema: no references, no unions with null, a type at every node. This module converts
pydantic's JSON schema. The tests check the result on a real API server.
"""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from vlm_api.base import ApiModel, Rule
from vlm_api.names import CATEGORIES, GROUP, KIND, PLURAL, SHORT_NAME, SINGULAR, VERSION
from vlm_api.status import VLMService

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
VALIDATIONS = "x-kubernetes-validations"

# The JSON schema keywords of a structural schema, in output order.
KEPT = (
    "description", "type", "enum", "format", "minLength", "maxLength", "minimum", "maximum", "maxItems",
    "maxProperties", "nullable", INT_OR_STRING, PRESERVE, "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    VALIDATIONS,
)  # fmt: skip

COLUMNS = (
    ("Model", "string", ".spec.model.uri", 0),
    ("GPU", "string", ".status.plan.hardware.product", 0),
    ("Desired", "integer", ".status.desiredReplicas", 0),
    ("Ready", "integer", ".status.readyReplicas", 0),
    ("Up-to-date", "integer", ".status.updatedReplicas", 0),
    ("Status", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Engine", "string", ".status.plan.engine.version", 1),
    ("Plan", "string", ".status.plan.hash", 1),
    ("URL", "string", ".status.url", 1),
)


class _WithRules(GenerateJsonSchema):
    """Pydantic's JSON schema with each type's rules, and without null for optional fields."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        if rules := schema["cls"].RULES:
            result[VALIDATIONS] = [_validation(rule) for rule in rules]
        return result


def _validation(rule: Rule) -> dict[str, Any]:
    """``Rule`` -> an entry of ``x-kubernetes-validations``."""
    parts = {
        "rule": rule.cel,
        "message": rule.message,
        "messageExpression": rule.message_cel,
        "fieldPath": rule.field and f".{rule.field}",
    }
    return {key: value for key, value in parts.items() if value is not None}


def structural_schema(model: type[ApiModel], *, defaults: bool = True) -> dict[str, Any]:
    """The structural schema of a type, with all nested types inlined.

    With ``defaults``, objects get their defaults too, so that these apply if the manifest does not mention the object.
    They are complete, since the server checks a default against the object's rules. Empty lists and maps are left out.
    """
    schema = model.model_json_schema(by_alias=True, schema_generator=_WithRules)
    return _structural(schema, schema.get("$defs", {}), defaults)


def _structural(node: dict[str, Any], definitions: dict[str, Any], defaults: bool) -> dict[str, Any]:
    """Converts one node of pydantic's schema and everything below it."""
    if reference := node.get("$ref"):
        node = definitions[reference.rpartition("/")[2]] | {k: v for k, v in node.items() if k != "$ref"}
    if "const" in node:
        node = node | {"enum": [node["const"]]}
    result = {key: node[key] for key in KEPT if key in node}
    if "description" in node:
        result["description"] = _plain(node["description"])
    if "items" in node:
        result["items"] = _structural(node["items"], definitions, defaults)
    if properties := node.get("properties"):
        result["properties"] = {k: _structural(v, definitions, defaults) for k, v in properties.items()}
        if required := node.get("required"):
            result["required"] = required
    elif values := node.get("additionalProperties"):
        if values is True or PRESERVE in values:
            result[PRESERVE] = True
        else:
            result["additionalProperties"] = _structural(values, definitions, defaults)
    if defaults and (default := _without_empty(node.get("default"))) is not None:
        result["default"] = default
    return result


def _without_empty(default: Any) -> Any:
    """A default without nulls, empty lists and empty maps at any depth; None if nothing is left."""
    if isinstance(default, dict):
        default = {k: kept for k, v in default.items() if (kept := _without_empty(v)) is not None}
    return None if default in ([], {}) else default


def _plain(docstring: str) -> str:
    """A docstring as one line, with single backticks."""
    return " ".join(docstring.split()).replace("``", "`")


def custom_resource_definition() -> dict[str, Any]:
    """The VLMService CustomResourceDefinition, ready for ``kubectl apply``."""
    schema = structural_schema(VLMService)
    fields = schema["properties"]
    fields["apiVersion"] = {"type": "string", "description": "Version of this object's schema."}
    fields["kind"] = {"type": "string", "description": "Kind of this object."}
    fields["metadata"] = {"type": "object", "properties": {"name": {"type": "string"}}}
    # The scale subresource needs a value here.
    fields["spec"]["properties"]["replicas"]["default"] = 1
    # The operator writes the status: the API server must not add defaults.
    fields["status"] = structural_schema(VLMService, defaults=False)["properties"]["status"]
    schema["required"] = ["metadata", "spec"]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT_NAME],
                "categories": list(CATEGORIES),
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [
                        {"name": name, "type": type_, "jsonPath": path, "priority": priority}
                        for name, type_, path, priority in COLUMNS
                    ],
                }
            ],
        },
    }
