"""A start as a person sees it."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import Any

import pytest
from rich.console import Console

from vlm_api.report import Phase
from vlm_api.status import PhaseTook, Startup
from vlm_operator.cli.start import PHASES, WORDS, print_startup

NOW = datetime(2025, 11, 29, 12, 5, 0, tzinfo=timezone.utc)
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-11-29T12:00:00Z"}
LOADING = Startup(
    pod="vlm-0",
    phase="LoadingWeights",
    elapsed_seconds=180,
    budget_seconds=400,
    budget_reason="900 s, and 16,722 MiB at 25 MiB/s",
    phases=[
        PhaseTook(phase="Pulling", seconds=100),
        PhaseTook(phase="CheckingHardware", seconds=1),
        PhaseTook(phase="Starting", seconds=19),
    ],
)


def pod(name: str = "vlm-0", started: str | None = "2025-11-29T12:01:40Z") -> dict[str, Any]:
    running = {"running": {"startedAt": started}} if started else {"waiting": {"reason": "PodInitializing"}}
    containers = [{"name": "main", "state": running}]
    return {"metadata": {"name": name}, "status": {"conditions": [SCHEDULED], "containerStatuses": containers}}


def printed(startup: Startup, *pods: dict[str, Any], width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    print_startup(console, startup, pods, NOW)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def row(text: str, first: str) -> str:
    return next(line for line in text.splitlines() if line.split()[:1] == [first])


def test_phases_come_with_what_they_took_and_the_bar_with_its_budget_and_its_reason() -> None:
    text = printed(LOADING, pod())
    assert "Start of the slowest pod, vlm-0" in text
    assert row(text, "Pulling").split()[:3] == ["Pulling", "100", "s"]
    assert row(text, "Starting").split()[:3] == ["Starting", "19", "s"]
    # 200 s since the container's start, of which 20 s were other phases.
    assert row(text, "LoadingWeights").split()[:5] == ["LoadingWeights", "180", "s", "so", "far"]
    (line,) = [line for line in text.splitlines() if "█" in line]
    assert (line.count("█"), line.count("░")) == (20, 20)
    assert line.endswith("200 s of at most 400 s  step 4 of 8")
    assert text.splitlines()[-1] == "  900 s, and 16,722 MiB at 25 MiB/s"


def test_the_age_is_the_pods_own_and_else_the_operators() -> None:
    for others in ((), (pod("vlm-1"),), (pod(started=None),)):
        assert "180 s of at most 400 s" in printed(LOADING, *others)


def test_an_image_that_is_pulled_is_a_phase_of_its_own() -> None:
    pulling = Startup(pod="vlm-0", phase="Pulling", elapsed_seconds=15, budget_seconds=1200)
    text = printed(pulling, pod(started=None))
    assert text.splitlines()[-1].endswith("300 s of at most 1200 s  step 1 of 8")
    assert "15 s of at most 1200 s" in printed(pulling)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_is_enough(width: int) -> None:
    lines = printed(LOADING, pod(), width=width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert sum("200 s of at most 400 s" in line and "█" in line for line in lines) == 1
    assert not any(line.startswith("of 8") for line in lines)


def test_a_phase_of_a_newer_operator_is_shown_as_it_is() -> None:
    text = printed(LOADING.model_copy(update={"phase": "Dreaming"}))
    assert "Dreaming" in text
    assert "step" not in text


def test_every_phase_before_ready_has_words() -> None:
    assert set(WORDS) == {*PHASES} - {Phase.READY.value}
