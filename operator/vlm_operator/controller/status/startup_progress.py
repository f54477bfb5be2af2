"""How far a pool's start is, from its pods and their reports. Pure."""

from itertools import pairwise
from typing import Final

from vlm_api.report import Phase, Report
from vlm_api.status import MAX_PHASES, PULLING, PhaseTook, Startup
from vlm_operator.controller.status.observation import PoolObservation
from vlm_operator.controller.status.pods import PodView, seconds_between
from vlm_operator.manifests.workload import IMAGE_PULL_SECONDS

# The resolution of a start's age in the status: pods are asked more often, and each change of a status is a write.
ELAPSED_STEP_SECONDS: Final = 15


def startup(pool: PoolObservation, now: str) -> Startup | None:
    """How far the slowest pod of the plan in force is; None if none is starting. ``now`` is RFC 3339 in UTC."""
    pods = {p.name: p for p in pool.current_pods}
    pulling = sorted((p.scheduled_at, p.name) for p in pods.values() if p.pulling and p.scheduled_at)
    if pulling:
        since, name = pulling[0]
        return Startup(
            pod=name,
            phase=PULLING,
            elapsed_seconds=_in_steps(seconds_between(since, now)),
            budget_seconds=IMAGE_PULL_SECONDS,
            budget_reason="images are being pulled and volumes mounted",
        )
    plan_hash, over = pool.plan.hash if pool.plan else "", (Phase.DRAINING, Phase.STOPPED)
    starting = [
        (n, r) for n, r in pool.reports.items() if not r.ready and r.plan_hash == plan_hash and r.phase not in over
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
        budget_reason=(pool.plan.runtime.startup_reason or None) if pool.plan else None,
        phases=_phases(pods.get(name), slowest),
    )


def _phases(pod: PodView | None, report: Report) -> list[PhaseTook]:
    """The finished phases. A container that was restarted pulled nothing."""
    took = []
    if pod is not None and not pod.restarts and pod.scheduled_at and pod.started_at:
        took.append(PhaseTook(phase=PULLING, seconds=round(seconds_between(pod.scheduled_at, pod.started_at))))
    for began, after in pairwise(report.phases):
        took.append(PhaseTook(phase=began.phase.value, seconds=round(after.after_seconds - began.after_seconds)))
    return took[:MAX_PHASES]


def _in_steps(seconds: float) -> int:
    return int(seconds // ELAPSED_STEP_SECONDS * ELAPSED_STEP_SECONDS)
