"""The documentation: links work, manifests are valid, and generated pages are up to date."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from vlm_api.status import VLMService

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").glob("*.md")]
)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(REPOSITORY)) for page in PAGES])
def test_links_inside_the_repository_work(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target} in {page.name}"
        assert not anchor or anchor in anchors(linked), f"{target} in {page.name}"


def anchors(page: Path) -> set[str]:
    """The anchors that code forges make of headings."""
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


def test_generated_pages_are_up_to_date() -> None:
    outputs = runpy.run_path(str(REPOSITORY / "docs" / "generate.py"))["outputs"]()
    outdated = [str(path) for path, content in outputs.items() if path.read_text() != content]
    assert outdated == [], "run `make docs`"
