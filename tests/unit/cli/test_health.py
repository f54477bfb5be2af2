"""``kubectl vlm status``: conditions, the start, pods, and the next step."""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import Any

import pytest
from rich.console import Console
from unit.cli.builders import service

from vlm_api.status import VLMService, VLMServiceStatus
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.health import age, print_status
from vlm_operator.cli.live import read

NOW = datetime(2025, 11, 29, 12, 0, 0, tzinfo=timezone.utc)
POD = {
    "metadata": {"name": "vlm-5d8f-abcde", "creationTimestamp": "2025-11-29T11:50:00Z"},
    "spec": {"nodeName": "hopper"},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "side", "restartCount": 9},
            {"name": "main", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        ],
    },
}


def condition(name: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": name,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2025-11-29T11:57:00Z",
    }


def printed(status: dict[str, Any] | None, *pods: dict[str, Any]) -> str:
    raw = service() | ({"status": status} if status else {})
    raw["metadata"] = {"name": "vlm", "namespace": "team", "generation": 2}
    console = Console(file=io.StringIO(), width=120, markup=False, highlight=False)
    print_status(console, *read(raw), pods, NOW)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def test_a_service_that_serves_needs_nothing() -> None:
    text = printed(
        {
            "observedGeneration": 2,
            "readyReplicas": 1,
            "updatedReplicas": 1,
            "url": "http://vlm.team.svc:8000/v1",
            "conditions": [condition("Ready", "True", "Serving", "1 of 1 replicas answers")],
        }
    )
    assert text.splitlines()[0] == "vlm in team  Serving"
    assert "1 ready, 1 up to date, 1 wanted" in text
    assert "http://vlm.team.svc:8000/v1" in text
    assert text.splitlines()[-1] == "  nothing: it serves. `kubectl vlm explain vlm` shows its settings"


def test_a_suspended_service_is_said_to_have_no_pods() -> None:
    console = Console(file=(text := io.StringIO()), width=120, markup=False, highlight=False)
    suspended = service(suspend=True) | {"status": {"readyReplicas": 0}}
    print_status(console, *read(suspended), [], NOW)
    assert "0 ready, 0 up to date, 1 wanted, suspended: no pods" in text.getvalue()


def test_a_service_that_does_not_serve_says_the_next_step_last() -> None:
    text = printed(
        {"conditions": [condition("Ready", "False", "Unschedulable", "no node has a GPU free: add one")]}, POD
    )
    assert text.splitlines()[0] == "vlm in team  Unschedulable"
    assert text.splitlines()[-1] == "  no node has a GPU free: add one"


def test_conditions_say_since_when() -> None:
    text = printed({"conditions": [condition("Ready", "False", "Starting", "wait")]})
    (line,) = [line for line in text.splitlines() if line.startswith("  Ready ")]
    assert line.split() == ["Ready", "False", "Starting", "3m", "wait"]


def test_a_start_shows_its_phase_and_how_much_of_its_budget_is_gone() -> None:
    text = printed({"startup": {"phase": "LoadingWeights", "elapsedSeconds": 300, "budgetSeconds": 1200}})
    (line,) = [line for line in text.splitlines() if "LoadingWeights" in line]
    assert line.count("█") == 10
    assert line.count("░") == 30
    assert line.endswith("300 s of at most 1200 s  step 4 of 8")


def test_traffic_that_is_not_as_declared_is_something_to_know() -> None:
    finding = {
        "severity": "Warning",
        "reason": "ImagesRepeat",
        "message": "set it to Repeated",
        "path": "spec.workload",
    }
    images = {"declared": "SingleUse", "repeatedPercent": 40, "finding": finding}
    effective = {"pod": "vlm-0", "agrees": True, "images": images}
    text = printed({"effective": effective, "plan": {"hash": "abc"}})
    assert "Warning ImagesRepeat  (spec.workload)\n    set it to Repeated" in text
    del images["finding"]
    assert "ImagesRepeat" not in printed({"effective": effective, "plan": {"hash": "abc"}})


def test_a_pod_is_shown_with_what_holds_its_engine_up() -> None:
    text = printed({"observedGeneration": 2}, POD)
    (line,) = [line for line in text.splitlines() if "vlm-5d8f-abcde" in line]
    assert line.split() == ["vlm-5d8f-abcde", "no", "CrashLoopBackOff", "2", "10m", "hopper"]


def test_a_change_that_the_operator_has_not_seen_is_said() -> None:
    assert "the spec has changed since" in printed({"observedGeneration": 1})
    assert "the spec has changed since" not in printed({"observedGeneration": 2})


def test_a_service_that_nobody_looked_at_points_to_the_operator() -> None:
    assert "see whether the operator runs" in printed(None)


def test_what_a_newer_operator_added_to_the_status_is_passed_over() -> None:
    _, status = read(service() | {"status": {"replicas": 1, "news": {"a": 1}, "plan": {"hash": "x", "more": 1}}})
    assert isinstance(status, VLMServiceStatus)
    assert status.plan is not None
    assert status.plan.hash == "x"


def test_a_spec_that_this_version_does_not_know_is_said_in_a_sentence() -> None:
    with pytest.raises(ClusterError, match=r"vlm cannot be read: spec\.news: unknown field"):
        read(service(news=1))


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        ("2025-11-29T12:00:00Z", "0s"),
        ("2025-11-29T11:58:30Z", "90s"),
        ("2025-11-29T11:50:00Z", "10m"),
        ("2025-11-29T08:00:00Z", "4h"),
        ("2025-11-20T12:00:00Z", "9d"),
        ("2025-11-29T12:00:05Z", "0s"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(timestamp: str, expected: str) -> None:
    assert age(timestamp, NOW) == expected


def test_the_service_is_read_without_its_status() -> None:
    found, status = read(service())
    assert isinstance(found, VLMService)
    assert status is None
