"""Renders the chart with Helm, so that tests check objects instead of text."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from minicluster.paths import tool

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "charts" / "vlm-operator"
IMAGE = {"image": {"repository": "registry.test/vlm-operator"}}

Manifest = dict[str, Any]


class ChartError(Exception):
    """Helm's error message about values or templates."""


def helm(*arguments: str, values: Mapping[str, Any] | None = None) -> str:
    """Runs Helm, with `values` as a values file on standard input. Raises ChartError with Helm's output if it fails."""
    command = [str(tool("helm")), *arguments, *(["--values", "-"] if values is not None else [])]
    done = subprocess.run(command, input=yaml.safe_dump(values or {}), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChartError(done.stdout + done.stderr)
    return done.stdout


def render_chart(
    values: Mapping[str, Any] | None = None,
    *,
    name: str = "vlm-operator",
    namespace: str = "vlm-system",
    api_versions: Sequence[str] = (),
) -> list[Manifest]:
    """Every object of the chart with these values and a default image; ``api_versions``: the kinds in the cluster."""
    known = [f"--api-versions={version}" for version in api_versions]
    text = helm("template", name, str(CHART), "--namespace", namespace, *known, values={**IMAGE, **(values or {})})
    return [document for document in yaml.safe_load_all(text) if document]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one object of that kind."""
    found = [manifest for manifest in manifests if manifest["kind"] == kind]
    assert len(found) == 1, f"expected one {kind}, found {[m['metadata']['name'] for m in found]}"
    return found[0]


def rules(manifests: list[Manifest], *kinds: str) -> Iterator[tuple[Manifest, Manifest]]:
    """Role and rule, for each rule that is bound to the operator's ServiceAccount."""
    account = only(manifests, "ServiceAccount")["metadata"]["name"]
    for binding in manifests:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if all(subject["name"] != account for subject in binding["subjects"]):
            continue
        reference = binding["roleRef"]
        for role in manifests:
            same_place = role["metadata"].get("namespace") == binding["metadata"].get("namespace")
            if role["kind"] == reference["kind"] and role["metadata"]["name"] == reference["name"] and same_place:
                yield from ((role, rule) for rule in role["rules"] if not kinds or role["kind"] in kinds)
