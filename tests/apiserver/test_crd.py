"""The CRD on a real API server: it accepts and refuses what the types do, in words that help."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from crd_cases import RIGHT, WRONG, Right, Wrong, service

if TYPE_CHECKING:
    from apiserver.conftest import Kubectl


@pytest.mark.parametrize("case", RIGHT, ids=lambda c: c.sentence)
def test_accepts(kubectl: Kubectl, case: Right) -> None:
    kubectl("create", "--dry-run=server", "-f", "-", stdin=service(case))


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c.sentence)
def test_refuses(kubectl: Kubectl, case: Wrong) -> None:
    done = kubectl.attempt("create", "--dry-run=server", "-f", "-", stdin=service(case))
    assert done.returncode == 1
    # A duplicate is reported at the second item, and a field that is not there in quotes.
    assert re.search(rf"(\A|[\s\"*]){re.escape(case.path)}(\[\d+\])?[:\"]", done.stderr), done.stderr
    assert case.says in done.stderr


def test_refuses_without_a_spec(kubectl: Kubectl) -> None:
    manifest = {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "metadata": {"name": "vlm"}}
    done = kubectl.attempt("create", "--dry-run=server", "-f", "-", stdin=manifest)
    assert done.returncode == 1
    assert "spec: Required value" in done.stderr


def test_the_cluster_takes_the_definition_without_a_warning(kubectl: Kubectl) -> None:
    path = "jsonpath={range .status.conditions[*]}{.type}={.status} {end}"
    conditions = kubectl("get", "crd/vlmservices.vlmserve.dev", "-o", path).split()
    assert {"NamesAccepted=True", "Established=True"} <= set(conditions)
    assert "NonStructuralSchema=True" not in conditions
