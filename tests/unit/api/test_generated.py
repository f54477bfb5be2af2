"""Generated files are current, and keep the fields and limits that manifests depend on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlm_api.crd import custom_resource_definition

REPOSITORY = Path(__file__).resolve().parents[3]
VERSION = custom_resource_definition()["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]

# Manifests depend on these; a name that goes away here breaks somebody.


def test_generated_files_are_up_to_date() -> None:
    command = [sys.executable, str(REPOSITORY / "crds/generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a schema below a path, without the inside of the pod template, which is core/v1's."""
    yield path, node
    if path.endswith(("spec.template", "pools[].template", "router.template")):
        return
    for name, field in node.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")


def test_everything_that_a_user_can_write_is_bounded_so_that_rules_stay_cheap() -> None:
    unbounded = [
        path
        for path, node in nodes(SCHEMA["properties"]["spec"], "spec")
        if (node.get("type") == "string" and not {"enum", "maxLength"} & node.keys())
        or (node.get("type") == "array" and "maxItems" not in node)
        or (node.get("type") == "integer" and not {"minimum", "maximum"} <= node.keys())
    ]
    assert unbounded == []


def test_every_field_says_what_it_is() -> None:
    silent = [
        path
        for path, node in nodes(SCHEMA, "")
        if path and "[]" not in path[-2:] and not path.startswith(".metadata") and not node.get("description")
    ]
    assert silent == []


def test_a_status_has_no_defaults_since_what_the_operator_left_out_must_stay_out() -> None:
    assert [path for path, node in nodes(SCHEMA["properties"]["status"], "status") if "default" in node] == []
    assert [path for path, node in nodes(SCHEMA["properties"]["spec"], "spec") if "default" in node]
