"""What a LeaderWorkerSet does not report and a Deployment does."""

from typing import Any

from unit.controller.observations import NOW, PLAN, observed, pod, status_of

from vlm_operator.controller.status.replicas import missing_pods, overdue, replicas
from vlm_operator.manifests.workload import IMAGE_PULL_SECONDS


def test_groups_without_all_of_their_pods_say_where_to_look() -> None:
    live = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "vlm-group", "generation": 1},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2}},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2},
    }
    there = [pod(name=f"vlm-group-{n}") for n in range(4)]
    assert missing_pods(live, there) is None
    missing = missing_pods(live, there[:3])
    assert "3 of 4 pods" in missing
    assert "kubectl describe statefulsets -l leaderworkerset.sigs.k8s.io/name=vlm-group" in missing
    after = status_of(observed(plan=PLAN, replicas=replicas(live), missing=missing))
    conditions = {c.type: c for c in after.conditions}
    for condition in ("Ready", "Progressing"):
        assert (conditions[condition].reason, conditions[condition].message) == ("PodsMissing", missing)


def test_nothing_is_missing_of_a_deployment_or_of_a_service_at_rest() -> None:
    group = {"kind": "LeaderWorkerSet", "metadata": {"name": "g"}, "spec": {"leaderWorkerTemplate": {"size": 2}}}
    assert missing_pods(None, []) is None
    assert missing_pods({**group, "kind": "Deployment"}, []) is None
    assert missing_pods({**group, "spec": {**group["spec"], "replicas": 0}}, []) is None
    assert missing_pods(group, []) is not None


def test_groups_that_exceed_their_deadline_are_overdue_as_a_deployment_would_be() -> None:
    deadline = PLAN.runtime.startup_budget_seconds + IMAGE_PULL_SECONDS

    def stuck(seconds: int, moved: str | None = None, **of_condition: str) -> str | None:
        since = {"lastTransitionTime": "2026-01-01T00:00:00Z", "type": "Progressing", "status": "True", **of_condition}
        live: dict[str, Any] = {"kind": "LeaderWorkerSet", "metadata": {"name": "g"}, "status": {"conditions": [since]}}
        pods = [pod("g-0", scheduled_at=moved)] if moved else []
        hours, rest = divmod(seconds, 3600)
        return overdue(live, PLAN, pods, f"2026-01-01T{hours:02}:{rest // 60:02}:{rest % 60:02}Z")

    assert stuck(deadline - 1) is None
    assert f"more than {deadline} s" in str(stuck(deadline + 1))
    assert stuck(deadline + 1, status="False") is None
    assert stuck(deadline + 1, moved="2026-01-01T00:10:00Z") is None, "a rollout goes from group to group"
    assert overdue({"kind": "Deployment", "metadata": {"name": "d"}}, PLAN, [], NOW) is None
