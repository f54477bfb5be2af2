"""A start for a person: the phases with their times, and how much of the budget is gone at this moment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from vlm_api.names import MAIN_CONTAINER
from vlm_api.report import Phase
from vlm_api.status import PULLING, Startup
from vlm_operator.cli.console import INDENT, bar, columns, heading
from vlm_operator.documents import Document

BAR_WIDTH: Final = 40
LEAST_BAR_WIDTH: Final = 10
PHASES: Final = (PULLING, *(phase.value for phase in list(Phase)[: list(Phase).index(Phase.READY) + 1]))

# What each phase is, in the words of somebody who waits for it.
WORDS: Final = {
    PULLING: "images are pulled, volumes mounted",
    Phase.CHECKING_HARDWARE.value: "the GPUs are compared with the plan",
    Phase.STARTING.value: "the engine is imported and reads its configuration",
    Phase.LOADING_WEIGHTS.value: "weights are read, downloaded where they are not there yet",
    Phase.CAPTURING_GRAPHS.value: "CUDA graphs are recorded",
    Phase.WARMING_UP.value: "the engine answers its own first request",
    Phase.FIRST_IMAGE.value: "the runtime waits for an answer about an image",
}


def print_startup(console: Console, startup: Startup, pods: Sequence[Document], now: datetime) -> None:
    """The slowest pod's start. Its pod, where it is among ``pods``, tells the age to the second."""
    pod = next((p for p in pods if p["metadata"]["name"] == startup.pod), None)
    elapsed = _elapsed(startup, pod, now)
    console.print(heading(f"Start of the slowest pod{f', {startup.pod}' if startup.pod else ''}"))
    _print_phases(console, startup, elapsed)
    share = elapsed / startup.budget_seconds if startup.budget_seconds else 0.0
    before, after = f"{INDENT}{startup.phase}  ", f"  {elapsed} s of at most {startup.budget_seconds} s"
    step = f"  step {PHASES.index(startup.phase) + 1} of {len(PHASES)}" if startup.phase in PHASES else ""
    room = console.width - len(before + after + step)
    if room < LEAST_BAR_WIDTH:
        room, step = room + len(step), ""
    graph = bar(console, share, min(BAR_WIDTH, max(room, LEAST_BAR_WIDTH)))
    console.print(Text(before, style="bold") + graph + Text(after) + Text(step, style="dim"))
    if startup.budget_reason:
        for wrapped in Text(startup.budget_reason, style="dim").wrap(console, max(console.width - 2, 20)):
            console.print(Text(INDENT) + wrapped)


def _print_phases(console: Console, startup: Startup, elapsed: int) -> None:
    """Those that are over with what they took, the present one with what it has taken so far."""
    if not startup.phases:
        return
    table = columns("PHASE", "TOOK", "WHAT")
    for phase in startup.phases:
        table.add_row(INDENT + phase.phase, f"{phase.seconds} s", WORDS.get(phase.phase, ""), style="dim")
    # A phase before the runtime's start is not part of its time.
    before = sum(p.seconds for p in startup.phases if p.phase != PULLING)
    table.add_row(INDENT + startup.phase, f"{max(elapsed - before, 0)} s so far", WORDS.get(startup.phase, ""))
    console.print(table)


def _elapsed(startup: Startup, pod: Document | None, now: datetime) -> int:
    """Seconds until now; the status alone is up to 15 s behind."""
    since = _began(startup.phase, pod.get("status") or {}) if pod is not None else None
    if since is None:
        return startup.elapsed_seconds
    return max(int((now - datetime.fromisoformat(since.replace("Z", "+00:00"))).total_seconds()), 0)


def _began(phase: str, status: Document) -> str | None:
    if phase == PULLING:
        scheduled: dict[str, Any] = next(
            (c for c in status.get("conditions") or [] if c.get("type") == "PodScheduled"), {}
        )
        return scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None
    main: dict[str, Any] = next(
        (c for c in status.get("containerStatuses") or [] if c.get("name") == MAIN_CONTAINER), {}
    )
    return ((main.get("state") or {}).get("running") or {}).get("startedAt")
