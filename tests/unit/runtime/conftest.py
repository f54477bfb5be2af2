"""Containers with a stand-in for the engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from unit.runtime.harness import STAND_IN, Container, make_plan

from vlm_api.plan import ServingPlan


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Callable[..., Container]]:
    """Starts containers and ends what is left of them."""
    started: list[Container] = []

    def start(
        plan: ServingPlan | None = None,
        env: Mapping[str, str] | None = None,
        options: list[str] | None = None,
        engine_command: list[str] | None = None,
        within: Sequence[str] = (),
        **stand_in: Any,
    ) -> Container:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        environment = {"STAND_IN": json.dumps(stand_in), **(env or {})}
        command = engine_command or [sys.executable, str(STAND_IN)]
        given = [*(options or []), "--engine-command", *command]
        program = [*within, sys.executable, "-m", "vlm_runtime"]
        started.append(Container(folder, plan or make_plan(), program=program, options=given, env=environment))
        return started[-1]

    yield start
    for run in started:
        run.end()
