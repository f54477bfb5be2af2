"""Generates docs/api.md: every field with its type, bounds, default and description, and every rule."""

from collections.abc import Iterator
from typing import Any

from vlm_api.crd import COLUMNS, INT_OR_STRING, PRESERVE, VALIDATIONS, custom_resource_definition, structural_schema
from vlm_api.names import CATEGORIES, SHORT_NAME
from vlm_api.plan import ServingPlan
from vlm_api.reasons import CONDITIONS, FAILURES, UNREAD, FindingReason

Schema = dict[str, Any]
_FINDINGS = {reason.value: reason.sentence for reason in FindingReason}

HEADER = """\
<!-- Generated from crds/vlm_api by `make crds`; edit the docstrings there. -->

# API reference

`kubectl explain vlms --recursive` shows the same fields. The API server and `kubectl vlm plan` enforce the same rules;
without a cluster, the command exits with code 2 and prints one line per error. Unknown fields are refused. A null field
counts as unset.

"""


def reference() -> str:
    """The whole file."""
    crd = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    parts = [
        HEADER,
        f"## VLMService\n\n`vlmserve.dev/v1alpha1`, short name `{SHORT_NAME}`, categories "
        f"{', '.join(f'`{c}`' for c in CATEGORIES)}. {crd['description']}\n\n",
        _rules(crd, "metadata.name"),
        "".join(_sections(crd["properties"]["spec"], "spec")),
        "".join(_sections(crd["properties"]["status"], "status")),
        _columns(),
        "## ServingPlan\n\nThe output of `kubectl vlm plan -o json`; several plans are a `List`. Null means unknown.\n\n",
        "".join(_sections(_without_type(structural_schema(ServingPlan)), "plan")),
        *_reasons(),
    ]
    return "".join(parts).rstrip() + "\n"


def _sections(node: Schema, path: str) -> Iterator[str]:
    """A section for an object and one for each nested object."""
    yield f"### `{path}`\n\n{node.get('description', '')}\n\n"
    yield _rules(node)
    yield "| field | type | default | |\n|---|---|---|---|\n"
    required = node.get("required", [])
    for name, field in node["properties"].items():
        default = "required" if name in required else _default(field)
        yield f"| `{name}` | {_type(field)} | {default} | {_cell(field.get('description', ''))}{_form(field)} |\n"
    yield "\n"
    for name, field in node["properties"].items():
        for below, suffix in ((field, ""), (field.get("items", {}), "[]")):
            if "properties" in below and PRESERVE not in below:
                yield from _sections({**below, "description": below.get("description", "")}, f"{path}.{name}{suffix}")


def _type(field: Schema) -> str:
    """A field's type and bounds."""
    if INT_OR_STRING in field:
        return "integer or string"
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type", "any")
    if kind == "array":
        most = f", at most {field['maxItems']:,}" if "maxItems" in field else ""
        return f"list of {_type(field['items'])}{most}"
    if kind == "object" and PRESERVE in field and "maxProperties" not in field:
        return "object"
    if kind == "object" and "properties" not in field:
        values = _type(field["additionalProperties"]) if "additionalProperties" in field else "anything"
        return f"map to {values}"
    if kind == "integer" and "minimum" in field:
        return f"integer, {field['minimum']:,} to {field['maximum']:,}"
    return str(kind)


def _default(field: Schema) -> str:
    if "properties" in field or "default" not in field:
        return ""
    value = field["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _form(field: Schema) -> str:
    """The messages of a field's validation rules."""
    messages = [("It", each) for each in field.get(VALIDATIONS, [])] if "properties" not in field else []
    if "properties" not in (items := field.get("items", {})):
        messages += [("Each", each) for each in items.get(VALIDATIONS, [])]
    return "".join(f" {subject} {_cell(each['message'])}." for subject, each in messages)


def _rules(node: Schema, subject: str = "") -> str:
    rules = [f"- {f'`{subject}` ' if subject else ''}{_cell(each['message'])}\n" for each in node.get(VALIDATIONS, [])]
    return "".join(rules) + "\n" if rules else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _without_type(node: Schema) -> Schema:
    """Without apiVersion and kind."""
    properties = {k: v for k, v in node["properties"].items() if k not in ("apiVersion", "kind")}
    return node | {"properties": properties}


def _columns() -> str:
    rows = "".join(
        f"| `{name}` | {'wide' if priority else ''} | `{path.replace('|', chr(92) + '|')}` |\n"
        for name, _, path, priority in COLUMNS
    )
    return f"## Columns of `kubectl get {SHORT_NAME}`\n\n| column | `-o wide` | from |\n|---|---|---|\n{rows}\n"


def _reasons() -> Iterator[str]:
    """A table for each kind of reason."""
    for title, text, reasons in (
        (
            "Reasons of conditions and events",
            "A condition can also have the reason of a finding or of a failure.",
            CONDITIONS,
        ),
        ("Reasons of findings", "In `kubectl vlm plan` and `explain`, in conditions and in events.", _FINDINGS),
        ("Reasons of failed containers", "In the termination message, in events and in conditions.", FAILURES),
        ("Reasons why a model cannot be read", "From the inspection Job, in `status.model` and `ModelReady`.", UNREAD),
    ):
        rows = "".join(f"| `{reason}` | {_cell(sentence)} |\n" for reason, sentence in reasons.items())
        yield f"## {title}\n\n{text}\n\n| reason | |\n|---|---|\n{rows}\n"
