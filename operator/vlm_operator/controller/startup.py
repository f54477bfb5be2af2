"""How far a start is, from pods and their reports. Pure."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Final

from vlm_api.report import Phase, Report
from vlm_api.status import PULLING, PhaseTook, Startup
from vlm_operator.controller.observed import Observed
from vlm_operator.controller.pods import PodView
from vlm_operator.render.workload import IMAGE_PULL_SECONDS

# How exactly the status tells a start's age. Pods are asked more often, and each change of a status is a write.
ELAPSED_STEP_SECONDS: Final = 15


def startup(seen: Observed, now: str) -> Startup | None:
    """How far the slowest pod of the plan in force is; None when none is on its way. ``now`` is RFC 3339 in UTC."""
    plan_hash = seen.plan.hash if seen.plan else ""
    pods = {p.name: p for p in seen.pods if p.plan_hash == plan_hash and not p.deleting}
    pulling = sorted((p.scheduled_at, p.name) for p in pods.values() if p.pulling and p.scheduled_at)
    if pulling:
        since, name = pulling[0]
        return Startup(
            pod=name,
            phase=PULLING,
            elapsed_seconds=_in_steps(seconds_between(since, now)),
            budget_seconds=IMAGE_PULL_SECONDS,
            budget_reason="images are pulled and volumes mounted",
        )
    over = (Phase.DRAINING, Phase.STOPPED)
    starting = [
        (n, r) for n, r in seen.reports.items() if not r.ready and r.plan_hash == plan_hash and r.phase not in over
    ]
    if not starting:
        return None
    order = list(Phase)
    name, slowest = min(starting, key=lambda each: (order.index(each[1].phase), -each[1].elapsed_seconds, each[0]))
    return Startup(
        pod=name,
        phase=slowest.phase.value,
        elapsed_seconds=_in_steps(slowest.elapsed_seconds),
        budget_seconds=slowest.budget_seconds,
        budget_reason=(seen.plan.runtime.startup_reason or None) if seen.plan else None,
        phases=_phases(pods.get(name), slowest),
    )


def seconds_between(earlier: str, later: str) -> float:
    """Seconds between two RFC 3339 times, never below zero: the nodes' clocks may differ."""
    first, second = (datetime.fromisoformat(time.replace("Z", "+00:00")) for time in (earlier, later))
    return max((second - first).total_seconds(), 0.0)


def _phases(pod: PodView | None, report: Report) -> list[PhaseTook]:
    """The phases that are over. A container that was started again pulled nothing."""
    took = []
    if pod is not None and not pod.restarts and pod.scheduled_at and pod.started_at:
        took.append(PhaseTook(phase=PULLING, seconds=round(seconds_between(pod.scheduled_at, pod.started_at))))
    for began, after in pairwise(report.phases):
        took.append(PhaseTook(phase=began.phase.value, seconds=round(after.after_seconds - began.after_seconds)))
    return took


def _in_steps(seconds: float) -> int:
    return int(seconds // ELAPSED_STEP_SECONDS * ELAPSED_STEP_SECONDS)
