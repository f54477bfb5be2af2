"""Containers with a stand-in for the engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from unit.runtime.harness import STAND_IN, Container, make_plan

from vlm_api.plan import ServingPlan


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Container]:
    """Starts a container; the keywords at the end are options of the stand-in."""

    def start(
        plan: ServingPlan | None = None,
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        engine_command: Sequence[str] = (sys.executable, str(STAND_IN)),
        within: Sequence[str] = (),
        endpoint_delay: float = 0.3,
        **stand_in: Any,
    ) -> Container:
        return Container(
            tmp_path_factory.mktemp("pod"),
            plan or make_plan(),
            program=[*within, sys.executable, "-m", "vlm_runtime"] if within else [],
            options=[*options, "--engine-command", *engine_command],
            env={"STAND_IN": json.dumps(stand_in), **(env or {})},
            endpoint_delay=endpoint_delay,
        )

    return start


@pytest.fixture
def container(start: Callable[..., Container]) -> Iterator[Callable[..., Container]]:
    """Starts containers and ends what is left of them after the test."""
    started: list[Container] = []

    def start_and_keep(*args: Any, **options: Any) -> Container:
        started.append(start(*args, **options))
        return started[-1]

    yield start_and_keep
    for run in started:
        run.end()
