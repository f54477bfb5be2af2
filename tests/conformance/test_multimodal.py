"""Which models take images, and whose vision is off by itself, is what the source of each published wheel says."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import vlm_operator.engines
from vlm_operator.engines.catalogue import versions

LISTS = {"takes_media": "multimodal_model_archs", "off_by_itself": "mm_disabled_models"}


def words(node: ast.expr, names: dict[str, list[str]]) -> Iterator[str]:
    """The texts of a list, with the lists that it unpacks."""
    if isinstance(node, ast.Constant):
        yield node.value
    elif isinstance(node, ast.Name):
        yield from names[node.id]
    elif isinstance(node, ast.Starred):
        yield from words(node.value, names)
    elif isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from words(element, names)


def lists(source: str) -> dict[str, set[str]]:
    names: dict[str, list[str]] = {}
    wanted = {*LISTS.values(), "MIMO_V2_MULTIMODAL_ARCHS"}
    assignments = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assign)]
    for node in sorted(assignments, key=lambda node: node.lineno):
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id in wanted:
            names[node.targets[0].id] = list(words(node.value, names))
    return {ours: set(names[theirs]) for ours, theirs in LISTS.items()}


@pytest.mark.parametrize("version", versions())
def test_the_committed_lists_are_the_wheels(version: str, wheel: Any) -> None:
    path = Path(vlm_operator.engines.__file__).with_name("multimodal.yaml")
    committed = yaml.safe_load(path.read_text("utf-8"))
    with zipfile.ZipFile(wheel(version)) as archive:
        found = lists(archive.read("sglang/srt/configs/model_config.py").decode())
    order = versions()
    for ours, names in found.items():
        assert names
        known = {
            name
            for since, listed in committed[ours].items()
            if order.index(since) <= order.index(version)
            for name in listed
        }
        assert known == names, ours
