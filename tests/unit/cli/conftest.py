"""Runs ``kubectl vlm plan`` in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.cli.builders import Result, node

from vlm_operator.cli.main import main


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``plan(service, ..., nodes=[...], flags=[...])``; without nodes, one with eight H100s."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(
        *services: dict[str, Any], nodes: list[dict[str, Any]] | None = None, flags: tuple[str, ...] = ()
    ) -> Result:
        file, nodes_file = tmp_path / "service.yaml", tmp_path / "nodes.yaml"
        file.write_text("\n---\n".join(json.dumps(each) for each in services))
        items = [node()] if nodes is None else nodes
        nodes_file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        code = main(["plan", "-f", str(file), "--nodes", str(nodes_file), *flags])
        output = capsys.readouterr()
        return Result(code, output.out, output.err)

    return run
