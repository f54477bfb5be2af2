"""How many replicas a workload has, and what a LeaderWorkerSet does not report but a Deployment does. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlm_api.names import LWS_KIND, LWS_NAME
from vlm_api.plan import ServingPlan
from vlm_operator.controller.status.pods import PodView, seconds_between
from vlm_operator.manifests.workload import IMAGE_PULL_SECONDS


@dataclass(frozen=True)
class Replicas:
    """A workload's numbers, by its own status. All zero without a workload."""

    wanted: int = 0
    present: int = 0
    ready: int = 0
    updated: int = 0
    available: int = 0
    settled: bool = True
    """False until the workload's controller has processed its current spec."""
    overdue: str | None = None
    """Why the rollout counts as stuck, if it has passed its deadline."""
    failure: str | None = None
    """Why the API server rejects its pods: a quota, a policy, a missing service account. Only a Deployment reports it."""


def replicas(workload: Mapping[str, Any] | None, overdue: str | None = None) -> Replicas:
    """A Deployment's or LeaderWorkerSet's numbers. ``overdue`` counts if the workload itself reports nothing about it."""
    if workload is None:
        return Replicas()
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    wanted = spec.get("replicas")
    ready = int(status.get("readyReplicas") or 0)
    generation = (workload.get("metadata") or {}).get("generation")
    conditions: Mapping[str, Mapping[str, Any]] = {str(c.get("type")): c for c in status.get("conditions") or []}
    progressing, failure = conditions.get("Progressing", {}), conditions.get("ReplicaFailure", {})
    return Replicas(
        wanted=1 if wanted is None else int(wanted),
        present=int(status.get("replicas") or 0),
        ready=ready,
        updated=int(status.get("updatedReplicas") or 0),
        # A LeaderWorkerSet counts ready groups only.
        available=int(status.get("availableReplicas") or 0) if workload.get("kind") == "Deployment" else ready,
        settled=status.get("observedGeneration") in (None, generation) and bool(status),
        overdue=str(progressing.get("message") or "the rollout has passed its deadline")
        if progressing.get("reason") == "ProgressDeadlineExceeded"
        else overdue,
        failure=str(failure.get("message") or failure.get("reason")) if failure.get("status") == "True" else None,
    )


def missing_pods(workload: Mapping[str, Any] | None, pods: Sequence[PodView]) -> str | None:
    """Which share of its groups' pods does not exist; None for a Deployment."""
    if workload is None or workload.get("kind") != LWS_KIND:
        return None
    name, spec = workload["metadata"]["name"], workload["spec"]
    wanted = int(spec.get("replicas", 1)) * int(spec["leaderWorkerTemplate"].get("size", 1))
    if len(pods) >= wanted:
        return None
    return (
        f"{len(pods)} of {wanted} pods exist and the others are not being created: "
        f"kubectl describe statefulsets -l {LWS_NAME}={name} shows why; "
        "if it lists none, check that the LeaderWorkerSet controller is running"
    )


def overdue(
    workload: Mapping[str, Any] | None, plan: ServingPlan | None, pods: Sequence[PodView], now: str
) -> str | None:
    """Why a rollout of groups counts as stuck: it takes longer than a Deployment of the same pods may.

    Counted from the newest pod's start, as a Deployment counts from its last progress. ``now`` is RFC 3339.
    """
    if workload is None or plan is None or workload.get("kind") != LWS_KIND:
        return None
    deadline = plan.runtime.startup_budget_seconds + IMAGE_PULL_SECONDS
    conditions = (workload.get("status") or {}).get("conditions") or []
    running = (c for c in conditions if c.get("type") == "Progressing" and c.get("status") == "True")
    since = next((c.get("lastTransitionTime") for c in running), None)
    if since is None:
        return None
    starts = [str(since), *(at for p in pods for at in (p.scheduled_at, p.started_at) if at)]
    if min(seconds_between(start, now) for start in starts) < deadline:
        return None
    return f"LeaderWorkerSet {workload['metadata']['name']} has been starting groups for more than {deadline} s"
