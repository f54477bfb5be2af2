"""How far a start is, from the pull of its image to the first answer."""

from dataclasses import replace
from typing import Any

from unit.controller.observations import PLAN, SERVED, pod, report, status_of

from vlm_api.report import Failure, Phase, PhaseStart, Report
from vlm_api.status import PhaseTook, Startup
from vlm_operator.controller.status.observation import PoolObservation
from vlm_operator.controller.status.pods import PodView
from vlm_operator.manifests.workload import IMAGE_PULL_SECONDS

NOW = "2026-01-01T00:05:00Z"
PHASES = [
    PhaseStart(phase=Phase.CHECKING_HARDWARE, after_seconds=0.0),
    PhaseStart(phase=Phase.STARTING, after_seconds=0.6),
    PhaseStart(phase=Phase.LOADING_WEIGHTS, after_seconds=21.0),
]


def starting(pods: list[PodView], **reports: Report) -> PoolObservation:
    return replace(SERVED, pods=pods, reports=reports)


def startup_of(found: PoolObservation, now: str = NOW) -> Startup | None:
    return status_of(found, now=now).startup


def on_its_way(name: str = "a", **changes: Any) -> PodView:
    return pod(name, scheduled_at="2026-01-01T00:00:00Z", started_at="2026-01-01T00:01:40Z", **changes)


def test_the_slowest_pods_start_is_shown_until_all_are_ready() -> None:
    reports = {
        "a": report(phase=Phase.WARMING_UP, elapsed_seconds=200.7),
        "b": report(phase=Phase.LOADING_WEIGHTS, elapsed_seconds=20.2),
        "c": report(phase=Phase.READY, ready=True),
        "old": report(phase=Phase.STARTING, plan_hash="other"),
    }
    found = startup_of(starting([pod("a"), pod("b"), pod("c")], **reports))
    assert (found.pod, found.phase, found.elapsed_seconds) == ("b", "LoadingWeights", 15)
    assert startup_of(SERVED) is None


def test_a_start_that_continues_is_not_written_each_time() -> None:
    def after(seconds: float) -> Any:
        loading = report(phase=Phase.LOADING_WEIGHTS, elapsed_seconds=seconds, phases=PHASES)
        return status_of(starting([on_its_way()], a=loading))

    assert after(30.1) == after(35.2) == after(40.3)
    assert after(45.0).startup.elapsed_seconds == 45


def test_a_pod_that_pulls_its_image_is_shown_before_its_runtime_reports() -> None:
    pulling = pod("a", running=False, scheduled_at="2026-01-01T00:00:00Z")
    found = startup_of(starting([pulling, on_its_way("b")], b=report(phase=Phase.LOADING_WEIGHTS)))
    assert (found.pod, found.phase) == ("a", "Pulling")
    assert (found.elapsed_seconds, found.budget_seconds) == (300, IMAGE_PULL_SECONDS)


def test_a_clock_that_is_behind_makes_no_negative_age() -> None:
    pulling = pod("a", running=False, scheduled_at="2026-01-01T00:09:00Z")
    found = startup_of(starting([pulling]))
    assert found.elapsed_seconds == 0


def test_a_pod_that_waits_for_a_node_failed_or_ends_is_pulling_nothing() -> None:
    failed = Failure(reason="ImagePullBackOff", message="m")
    since = "2026-01-01T00:00:00Z"
    for other in (
        pod(running=False, node=None),
        pod(running=False),
        pod(running=False, scheduled_at=since, failure=failed),
        pod(running=False, scheduled_at=since, deleting=True),
        pod(running=False, scheduled_at=since, restarts=1),
        pod(running=False, scheduled_at=since, plan_hash="before"),
        pod(running=True, scheduled_at=since),
    ):
        assert startup_of(starting([other])) is None


def test_phases_that_are_over_are_shown_with_what_they_took() -> None:
    loading = report(phase=Phase.LOADING_WEIGHTS, elapsed_seconds=80, phases=PHASES)
    found = startup_of(starting([on_its_way()], a=loading))
    assert found.phases == [
        PhaseTook(phase="Pulling", seconds=100),
        PhaseTook(phase="CheckingHardware", seconds=1),
        PhaseTook(phase="Starting", seconds=20),
    ]
    again = startup_of(starting([on_its_way(restarts=1)], a=loading))
    assert [p.phase for p in again.phases] == ["CheckingHardware", "Starting"]


def test_the_budget_says_where_it_comes_from() -> None:
    runtime = PLAN.runtime.model_copy(update={"startup_reason": "900 s, and 16,722 MiB at 25 MiB/s"})
    loading = {"vlm-0": report(phase=Phase.LOADING_WEIGHTS)}
    found = startup_of(
        replace(SERVED, plan=PLAN.model_copy(update={"runtime": runtime}), pods=[pod()], reports=loading)
    )
    assert found.budget_reason == "900 s, and 16,722 MiB at 25 MiB/s"
