"""What a LeaderWorkerSet does not tell, and a Deployment does: that pods cannot be made, and that it takes too long. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vlm_api.plan import ServingPlan
from vlm_api.status import Condition
from vlm_operator.controller import reasons
from vlm_operator.controller.pods import PodView
from vlm_operator.controller.startup import seconds_between
from vlm_operator.render.workload import IMAGE_PULL_SECONDS, LWS_KIND, LWS_NAME


def missing_pods(workload: Mapping[str, Any] | None, pods: Sequence[PodView]) -> str | None:
    """How many pods of its groups are not there; None for a Deployment."""
    if workload is None or workload.get("kind") != LWS_KIND:
        return None
    name, spec = workload["metadata"]["name"], workload["spec"]
    wanted = int(spec.get("replicas", 1)) * int(spec["leaderWorkerTemplate"].get("size", 1))
    if len(pods) >= wanted:
        return None
    return (
        f"{len(pods)} of {wanted} pods are there, and nobody makes the others: "
        f"kubectl describe statefulsets -l {LWS_NAME}={name} tells what refuses them; "
        "where it finds none, the controller of LeaderWorkerSets does not work"
    )


def missing_before(conditions: Mapping[str, Condition]) -> str | None:
    """What the status says of that; ``conditions`` by type."""
    found = conditions.get("Progressing")
    return found.message if found is not None and found.reason == reasons.PODS_MISSING else None


def overdue(
    workload: Mapping[str, Any] | None, plan: ServingPlan | None, pods: Sequence[PodView], now: str
) -> str | None:
    """That groups have been starting for longer than a Deployment of the same pods might, counted from the newest pod's
    start as a Deployment counts from its last progress; ``now`` in RFC 3339."""
    if workload is None or plan is None or workload.get("kind") != LWS_KIND:
        return None
    deadline = plan.runtime.startup_budget_seconds + IMAGE_PULL_SECONDS
    conditions = (workload.get("status") or {}).get("conditions") or []
    since = next(
        (
            c.get("lastTransitionTime")
            for c in conditions
            if c.get("type") == "Progressing" and c.get("status") == "True"
        ),
        None,
    )
    if since is None:
        return None
    moves = [str(since), *(at for p in pods for at in (p.scheduled_at, p.started_at) if at)]
    if min(seconds_between(move, now) for move in moves) < deadline:
        return None
    return f"LeaderWorkerSet {workload['metadata']['name']} has been starting groups for more than {deadline} s"
