"""What a reconcile has seen of one service: plain data, so that the conclusion from it is a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vlm_api.model import Inspection
from vlm_api.plan import ServingPlan
from vlm_api.report import Report
from vlm_api.status import ConditionStatus
from vlm_operator.controller.pods import PodView
from vlm_operator.errors import InvalidInput


class Verdict(NamedTuple):
    """A condition without its type and times."""

    status: ConditionStatus
    reason: str
    message: str


@dataclass(frozen=True)
class Drift:
    """A difference between a node and the plan: a reason of ours, and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True)
class Problem:
    """Something outside the plan that keeps a service from being made."""

    reason: str
    message: str


@dataclass(frozen=True)
class Replicas:
    """How many replicas a workload has, by its own status. All zero where there is no workload."""

    wanted: int = 0
    present: int = 0
    ready: int = 0
    updated: int = 0
    available: int = 0
    settled: bool = True
    """False while the workload's controller has not seen its present spec yet."""
    overdue: str | None = None
    """The workload's own words, where its roll-out has passed its deadline."""
    unmade: str | None = None
    """The API server's words, where it lets no pod of the workload be made: a quota, a policy, an account that is not there.
    Only a Deployment tells it."""


@dataclass(frozen=True)
class Observed:
    """Everything that a status is concluded from."""

    plan: ServingPlan | None = None
    """The plan in force, or the refused one; None where the spec is invalid, or while the first plan waits for facts."""
    kept: bool = False
    """True: it is the one before, word for word."""
    inspecting: str | None = None
    """What is waited for, while a Job reads the model's files for a new plan."""
    inspection: Inspection | None = None
    """What was read from the model's files."""
    invalid: InvalidInput | None = None
    problem: Problem | None = None
    replicas: Replicas = Replicas()
    pods: Sequence[PodView] = ()
    reports: Mapping[str, Report] = field(default_factory=dict)
    """What runtimes answered, by pod."""
    drift: Drift | None = None
    """A difference between the plan and a node of its pods that has lasted."""
    missing: str | None = None
    """Pods of groups that nobody has made for a while."""
    workload: Mapping[str, Any] | None = None
    """The live Deployment or LeaderWorkerSet."""
    autoscaler: Mapping[str, Any] | None = None
    """The live HorizontalPodAutoscaler."""


def replicas(workload: Mapping[str, Any] | None) -> Replicas:
    """A Deployment's or LeaderWorkerSet's numbers."""
    if workload is None:
        return Replicas()
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    wanted = spec.get("replicas")
    ready = int(status.get("readyReplicas") or 0)
    generation = (workload.get("metadata") or {}).get("generation")
    told: Mapping[str, Mapping[str, Any]] = {str(c.get("type")): c for c in status.get("conditions") or []}
    progressing, failure = told.get("Progressing", {}), told.get("ReplicaFailure", {})
    return Replicas(
        wanted=1 if wanted is None else int(wanted),
        present=int(status.get("replicas") or 0),
        ready=ready,
        updated=int(status.get("updatedReplicas") or 0),
        # A LeaderWorkerSet counts ready groups only.
        available=int(status.get("availableReplicas") or 0) if workload.get("kind") == "Deployment" else ready,
        settled=status.get("observedGeneration") in (None, generation) and bool(status),
        overdue=str(progressing.get("message") or "the roll-out has passed its deadline")
        if progressing.get("reason") == "ProgressDeadlineExceeded"
        else None,
        unmade=str(failure.get("message") or failure.get("reason")) if failure.get("status") == "True" else None,
    )
