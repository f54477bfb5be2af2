"""The documentation keeps up with the code: every reason is explained, and every link leads somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from vlm_api.reasons import FAILURES, UNREAD
from vlm_api.status import VLMService
from vlm_operator.cli.main import main
from vlm_operator.controller.pods import CANNOT_START
from vlm_operator.controller.reasons import SENTENCES

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").glob("*.md")]
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def reasons_of_findings() -> Iterator[str]:
    """Every CamelCase literal that the operator gives to a finding, from the source: as it stands, or by a constant's name."""
    for path in (REPOSITORY / "operator" / "vlm_operator").rglob("*.py"):
        tree = ast.parse(path.read_text())
        constants = {
            node.target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            for value in _reason(node):
                if isinstance(value, ast.Constant):
                    yield str(value.value)
                elif isinstance(value, ast.Name) and value.id in constants:
                    yield str(constants[value.id])


def _reason(node: ast.AST) -> list[ast.expr]:
    """The reason in ``Finding(reason=...)`` and in ``_tell(severity, reason, ...)``."""
    if not isinstance(node, ast.Call):
        return []
    if getattr(node.func, "attr", "") == "_tell":
        return node.args[1:2]
    return [k.value for k in node.keywords if k.arg == "reason"] if getattr(node.func, "id", "") == "Finding" else []


def test_troubleshooting_explains_every_reason_that_a_user_can_meet() -> None:
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
    explained = set(re.findall(r"`([A-Za-z]+)`", page))
    found = set(reasons_of_findings())
    assert {"ModelDoesNotFit", "EngineVersionUnknown", "EngineVariableUnknown"} <= found
    # Of a pull that failed only one of the kubelet's two words is told.
    assert {*SENTENCES, *FAILURES, *UNREAD, *found, *CANNOT_START, "ProgressDeadlineExceeded"} - {
        "ErrImagePull"
    } - explained == set()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(REPOSITORY)) for page in PAGES])
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target} in {page.name}"
        assert not anchor or anchor in anchors(linked), f"{target} in {page.name}"


def anchors(page: Path) -> set[str]:
    """Headings as code forges make anchors of them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def manifests() -> Iterator[Any]:
    for page in PAGES:
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)):
            if re.search(r"^kind: VLMService$", block, re.MULTILINE):
                yield pytest.param(block, id=f"{page.name}-{number}")
    for path in sorted((REPOSITORY / "examples").glob("qwen*.yaml")):
        yield pytest.param(path.read_text(), id=path.name)


@pytest.mark.parametrize("text", list(manifests()))
def test_every_service_that_is_shown_is_valid(text: str) -> None:
    VLMService.model_validate(yaml.safe_load(text))


def test_the_readme_shows_the_plan_that_is_really_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block = re.search(r"^\$ kubectl vlm (plan [^\n]*)\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.M | re.S)
    assert block is not None
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(block[1].split()) == 0
    made = "\n".join(line.rstrip() for line in capsys.readouterr().out.strip().splitlines())
    # The hash changes with every field that a later version adds to the pod, so the page shows a word in its place.
    shown, times = re.subn(r"(?<=  plan )[0-9a-f]{10}\b", "<hash>", made, count=1)
    assert times == 1
    assert block[2].strip() == shown


def test_the_table_of_gpus_is_up_to_date() -> None:
    path = REPOSITORY / "docs" / "generate_hardware.py"
    spec = spec_from_file_location("generate_hardware", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run `make chart`"
