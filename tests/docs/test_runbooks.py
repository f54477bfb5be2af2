"""Whoever is woken up copies commands from a runbook as they stand, in a shell that points at some namespace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RUNBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "runbooks").glob("*.md"))
COMMAND = re.compile(r"^kubectl .+$|(?<=`)kubectl [^`]+", re.MULTILINE)
NAMESPACED = re.compile(r"\s(?:-n|--namespace) (?:NAMESPACE|vlm-system)\b|\s(?:-A|--all-namespaces)\b")
WITHOUT_NAMESPACE = re.compile(r"^kubectl (?:get nodes?|cordon|drain|uncordon)\b")


def elsewhere(page: str) -> list[str]:
    """Commands that ask whatever namespace the shell points at."""
    commands = [command[0] for command in COMMAND.finditer(page)]
    return [c for c in commands if not NAMESPACED.search(c) and not WITHOUT_NAMESPACE.match(c)]


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=[path.stem for path in RUNBOOKS])
def test_every_command_of_a_runbook_names_the_namespace(runbook: Path) -> None:
    assert elsewhere(runbook.read_text()) == []


def test_a_command_without_a_namespace_is_found_in_a_block_and_in_a_sentence() -> None:
    block = "```sh\nkubectl get pods\nkubectl -n NAMESPACE get pods\n```\n"
    page = block + "or `kubectl scale vlms NAME --replicas=0`, `kubectl cordon NODE`."
    assert elsewhere(page) == ["kubectl get pods", "kubectl scale vlms NAME --replicas=0"]


def test_a_runbook_scales_by_kubectl_only_with_a_word_on_services_that_an_autoscaler_scales() -> None:
    for path in RUNBOOKS:
        page = path.read_text()
        assert "scale vlms" not in page or "`scaling`" in page, path.name
