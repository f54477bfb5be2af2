"""``kubectl vlm status``: conditions, the start, pods, and the next step."""

import io
from datetime import datetime, timezone
from typing import Any

import pytest
from rich.console import Console
from unit.cli.builders import service

from vlm_api.report import Phase
from vlm_api.status import PhaseTook, Startup, VLMServiceStatus
from vlm_operator.cli.service import read
from vlm_operator.cli.status_table import PHASE_TEXTS, PHASES, age, print_startup, print_status
from vlm_operator.errors import ClusterError

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


def test_a_ready_service_needs_nothing() -> None:
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
    assert "1 ready, 1 up to date, 1 desired" in text
    assert "http://vlm.team.svc:8000/v1" in text
    assert text.splitlines()[-1] == "  nothing: the service is ready. See its settings with `kubectl vlm explain vlm`"


def test_a_suspended_service_has_no_pods() -> None:
    console = Console(file=(text := io.StringIO()), width=120, markup=False, highlight=False)
    suspended = service(suspend=True) | {"status": {"readyReplicas": 0}}
    print_status(console, *read(suspended), [], NOW)
    assert "0 ready, 0 up to date, 1 desired, suspended (no pods)" in text.getvalue()


@pytest.mark.parametrize(
    ("other", "replicas", "step"),
    [
        (
            ("Progressing", "False", "Unschedulable", "add a GPU node"),
            7,
            "add a GPU node. Requests are answered meanwhile",
        ),
        (("Progressing", "True", "RollingOut", "7 run"), 7, "wait: 7 run. Requests are answered meanwhile"),
        (("Progressing", "False", "CudaOutOfMemory", "lower it"), 20, "lower it. Requests are answered meanwhile"),
        (("HardwareDrift", "True", "NodeGone", "node-1 is gone"), 20, "node-1 is gone"),
        (("ScalingActive", "False", "MetricMissing", "serve the metric"), 20, "serve the metric"),
        (("Progressing", "False", "Complete", "all run"), 20, "nothing: the service is ready."),
    ],
)
def test_what_a_ready_service_lacks_is_its_next_step(
    other: tuple[str, str, str, str], replicas: int, step: str
) -> None:
    conditions = [condition("Ready", "True", "Serving", "some replicas answer"), condition(*other)]
    text = printed({"readyReplicas": replicas, "desiredReplicas": 20, "conditions": conditions})
    assert text.splitlines()[-1].startswith(f"  {step}")


def test_the_next_step_is_not_that_of_an_older_spec() -> None:
    conditions = [condition("Ready", "False", "InvalidSpec", "correct spec.engine.args")]
    text = printed({"observedGeneration": 1, "conditions": conditions})
    step = text.split("Next step")[1]
    assert "has not processed the last change" in step
    assert "correct spec.engine.args" not in step


def test_the_next_step_comes_last() -> None:
    text = printed(
        {"conditions": [condition("Ready", "False", "Unschedulable", "no node has a GPU free: add one")]}, POD
    )
    assert text.splitlines()[0] == "vlm in team  Unschedulable"
    assert text.splitlines()[-1] == "  no node has a GPU free: add one"


def test_conditions_have_an_age() -> None:
    text = printed({"conditions": [condition("Ready", "False", "Starting", "wait")]})
    (line,) = [line for line in text.splitlines() if line.startswith("  Ready ")]
    assert line.split() == ["Ready", "False", "Starting", "3m", "wait"]


def test_a_pod_is_shown_with_its_waiting_reason() -> None:
    text = printed({"observedGeneration": 2}, POD)
    (line,) = [line for line in text.splitlines() if "vlm-5d8f-abcde" in line]
    assert line.split() == ["vlm-5d8f-abcde", "no", "CrashLoopBackOff", "2", "10m", "hopper"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "68.55 requests/s at concurrency 400, median TTFT 1,234 ms, 60m ago"),
        ({"planHash": "cd34"}, "68.55 requests/s at concurrency 400, median TTFT 1,234 ms, 60m ago, with plan cd34"),
        (
            {"failures": 3, "ttftP50Milliseconds": None},
            "68.55 requests/s at concurrency 400, 3 of 12000 requests failed, 60m ago",
        ),
    ],
)
def test_a_benchmark_has_its_age_failures_and_plan(changes: dict[str, Any], text: str) -> None:
    benchmark = {
        "time": "2025-11-29T11:00:00Z", "planHash": "ab12", "concurrency": 400, "rounds": 6, "requests": 12_000,
        "failures": 0, "requestsPerSecond": 68.551, "outputTokensPerSecond": 8774.5, "ttftP50Milliseconds": 1234.5,
    }  # fmt: skip
    status = {"conditions": [condition("Ready", "True", "Serving", "it serves")], "plan": {"hash": "ab12"}}
    [line] = [x for x in printed({**status, "benchmark": benchmark | changes}).splitlines() if "Measured" in x]
    assert line.split("Measured")[1].strip() == text


def test_an_unprocessed_change_is_noted() -> None:
    assert "the spec has changed;" in printed({"observedGeneration": 1})
    assert "the spec has changed;" not in printed({"observedGeneration": 2})


def test_a_service_without_status_points_to_the_operator() -> None:
    assert "Check that it runs" in printed(None)


def test_status_fields_of_a_newer_operator_are_ignored() -> None:
    _, status = read(service() | {"status": {"replicas": 1, "news": {"a": 1}, "plan": {"hash": "x", "more": 1}}})
    assert isinstance(status, VLMServiceStatus)
    assert status.plan.hash == "x"


def test_a_spec_of_a_newer_version_is_refused_in_a_sentence() -> None:
    with pytest.raises(ClusterError, match=r"cannot read vlm: spec\.news: unknown field"):
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


START_NOW = datetime(2025, 11, 29, 12, 5, 0, tzinfo=timezone.utc)
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-11-29T12:00:00Z"}
LOADING = Startup(
    pod="vlm-0",
    phase="LoadingWeights",
    elapsed_seconds=180,
    budget_seconds=800,
    budget_reason="900 s, and 16,722 MiB at 25 MiB/s",
    phases=[
        PhaseTook(phase="Pulling", seconds=100),
        PhaseTook(phase="CheckingHardware", seconds=1),
        PhaseTook(phase="Starting", seconds=19),
    ],
)


def starting_pod(name: str = "vlm-0", started: str | None = "2025-11-29T12:01:40Z") -> dict[str, Any]:
    running = {"running": {"startedAt": started}} if started else {"waiting": {"reason": "PodInitializing"}}
    containers = [{"name": "main", "state": running}]
    return {"metadata": {"name": name}, "status": {"conditions": [SCHEDULED], "containerStatuses": containers}}


def printed_start(startup: Startup, *pods: dict[str, Any], width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    print_startup(console, startup, pods, START_NOW)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def row(text: str, first: str) -> str:
    return next(line for line in text.splitlines() if line.split()[:1] == [first])


def test_phases_have_their_seconds_and_the_bar_its_budget_and_reason() -> None:
    text = printed_start(LOADING, starting_pod())
    assert "Start of the slowest pod, vlm-0" in text
    assert row(text, "Pulling").split()[:3] == ["Pulling", "100", "s"]
    assert row(text, "Starting").split()[:3] == ["Starting", "19", "s"]
    # 200 s since the container's start, of which 20 s were other phases.
    assert row(text, "LoadingWeights").split()[:5] == ["LoadingWeights", "180", "s", "so", "far"]
    (line,) = [line for line in text.splitlines() if "█" in line]
    assert (line.count("█"), line.count("░")) == (10, 30)
    assert line.endswith("200 s of at most 800 s  step 4 of 8")
    assert text.splitlines()[-1] == "  900 s, and 16,722 MiB at 25 MiB/s"


def test_the_age_comes_from_the_pod_if_it_is_known() -> None:
    for others in ((), (starting_pod("vlm-1"),), (starting_pod(started=None),)):
        assert "180 s of at most 800 s" in printed_start(LOADING, *others)


def test_pulling_the_image_is_a_phase() -> None:
    pulling = Startup(pod="vlm-0", phase="Pulling", elapsed_seconds=15, budget_seconds=1200)
    text = printed_start(pulling, starting_pod(started=None))
    assert text.splitlines()[-1].endswith("300 s of at most 1200 s  step 1 of 8")
    assert "15 s of at most 1200 s" in printed_start(pulling)


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_is_enough(width: int) -> None:
    lines = printed_start(LOADING, starting_pod(), width=width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert sum("200 s of at most 800 s" in line and "█" in line for line in lines) == 1
    assert not any(line.startswith("of 8") for line in lines)


def test_an_unknown_phase_is_shown_as_is() -> None:
    text = printed_start(LOADING.model_copy(update={"phase": "Dreaming"}))
    assert "Dreaming" in text
    assert "step" not in text


def test_every_phase_before_ready_has_text() -> None:
    assert set(PHASE_TEXTS) == {*PHASES} - {Phase.READY.value}
