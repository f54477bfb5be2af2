"""What is concluded about groups of pods, since a LeaderWorkerSet says less than a Deployment."""

from __future__ import annotations

from typing import Any

from unit.controller.test_conclude import NOW, PLAN, pod
from unit.render.samples import service

from vlm_operator.controller.conclude import conclude
from vlm_operator.controller.groups import missing_before, missing_pods, overdue
from vlm_operator.controller.observed import Observed, replicas
from vlm_operator.render.workload import IMAGE_PULL_SECONDS


def test_groups_that_lack_pods_say_who_can_tell_why() -> None:
    live = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "vlm-group", "generation": 1},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2}},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2},
    }
    there = [pod(name=f"vlm-group-{n}") for n in range(4)]
    assert missing_pods(live, there) is None
    missing = missing_pods(live, there[:3])
    assert missing is not None
    assert "3 of 4 pods" in missing
    assert "kubectl describe statefulsets -l leaderworkerset.sigs.k8s.io/name=vlm-group" in missing
    status = conclude(service(), Observed(plan=PLAN, replicas=replicas(live), missing=missing), None, NOW)
    told = {c.type: c for c in status.conditions}
    for condition in ("Ready", "Progressing"):
        assert (told[condition].reason, told[condition].message) == ("PodsMissing", missing)
    assert missing_before(told) == missing


def test_nothing_is_missing_of_a_deployment_or_of_a_service_at_rest() -> None:
    group = {"kind": "LeaderWorkerSet", "metadata": {"name": "g"}, "spec": {"leaderWorkerTemplate": {"size": 2}}}
    assert missing_pods(None, []) is None
    assert missing_pods({**group, "kind": "Deployment"}, []) is None
    assert missing_pods({**group, "spec": {**group["spec"], "replicas": 0}}, []) is None
    assert missing_pods(group, []) is not None


def test_groups_that_start_for_longer_than_they_may_are_overdue_as_a_deployment_would_be() -> None:
    deadline = PLAN.runtime.startup_budget_seconds + IMAGE_PULL_SECONDS

    def told(seconds: int, moved: str | None = None, **of_condition: str) -> str | None:
        since = {"lastTransitionTime": "2026-01-01T00:00:00Z", "type": "Progressing", "status": "True", **of_condition}
        live: dict[str, Any] = {"kind": "LeaderWorkerSet", "metadata": {"name": "g"}, "status": {"conditions": [since]}}
        pods = [pod("g-0", scheduled_at=moved)] if moved else []
        hours, rest = divmod(seconds, 3600)
        return overdue(live, PLAN, pods, f"2026-01-01T{hours:02}:{rest // 60:02}:{rest % 60:02}Z")

    assert told(deadline - 1) is None
    assert f"more than {deadline} s" in str(told(deadline + 1))
    assert told(deadline + 1, status="False") is None
    assert told(deadline + 1, moved="2026-01-01T00:10:00Z") is None, "a roll-out goes from group to group"
    assert overdue({"kind": "Deployment", "metadata": {"name": "d"}}, PLAN, [], NOW) is None
