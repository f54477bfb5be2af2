"""How far a start is, from the pull of its image to the first answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unit.controller.test_conclude import PLAN, SERVED, pod, report
from unit.render.samples import service

from vlm_api.report import Failure, Phase, PhaseBegan, Report
from vlm_api.status import PhaseTook, Startup
from vlm_operator.controller.conclude import conclude
from vlm_operator.controller.observed import Observed
from vlm_operator.controller.pods import PodView
from vlm_operator.render.workload import IMAGE_PULL_SECONDS

NOW = "2026-01-01T00:05:00Z"
PHASES = [
    PhaseBegan(phase=Phase.CHECKING_HARDWARE, after_seconds=0.0),
    PhaseBegan(phase=Phase.STARTING, after_seconds=0.6),
    PhaseBegan(phase=Phase.LOADING_WEIGHTS, after_seconds=21.0),
]


def starting(pods: list[PodView], **reports: Report) -> Observed:
    return replace(SERVED, pods=pods, reports=reports)


def told(found: Observed, now: str = NOW) -> Startup | None:
    return conclude(service(), found, None, now).startup


def on_its_way(name: str = "a", **changes: Any) -> PodView:
    return pod(name, scheduled_at="2026-01-01T00:00:00Z", started_at="2026-01-01T00:01:40Z", **changes)


def test_the_slowest_pods_start_is_shown_until_all_are_ready() -> None:
    reports = {
        "a": report(phase=Phase.WARMING_UP, elapsed_seconds=200.7),
        "b": report(phase=Phase.LOADING_WEIGHTS, elapsed_seconds=20.2),
        "c": report(phase=Phase.READY, ready=True),
        "old": report(phase=Phase.STARTING, plan_hash="other"),
    }
    found = told(starting([pod("a"), pod("b"), pod("c")], **reports))
    assert found is not None
    assert (found.pod, found.phase, found.elapsed_seconds) == ("b", "LoadingWeights", 15)
    assert told(SERVED) is None


def test_a_start_that_goes_on_is_not_written_each_time_that_it_is_asked() -> None:
    def status(seconds: float) -> Any:
        loading = report(phase=Phase.LOADING_WEIGHTS, elapsed_seconds=seconds, phases=PHASES)
        return conclude(service(), starting([on_its_way()], a=loading), None, NOW)

    assert status(30.1) == status(35.2) == status(40.3)
    assert status(45.0).startup.elapsed_seconds == 45


def test_a_pod_whose_image_is_pulled_says_so_before_any_runtime_can() -> None:
    pulling = pod("a", running=False, scheduled_at="2026-01-01T00:00:00Z")
    found = told(starting([pulling, on_its_way("b")], b=report(phase=Phase.LOADING_WEIGHTS)))
    assert found is not None
    assert (found.pod, found.phase) == ("a", "Pulling")
    assert (found.elapsed_seconds, found.budget_seconds) == (300, IMAGE_PULL_SECONDS)


def test_a_clock_that_is_behind_makes_no_negative_age() -> None:
    pulling = pod("a", running=False, scheduled_at="2026-01-01T00:09:00Z")
    found = told(starting([pulling]))
    assert found is not None
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
        assert told(starting([other])) is None


def test_phases_that_are_over_are_shown_with_what_they_took() -> None:
    loading = report(phase=Phase.LOADING_WEIGHTS, elapsed_seconds=80, phases=PHASES)
    found = told(starting([on_its_way()], a=loading))
    assert found is not None
    assert found.phases == [
        PhaseTook(phase="Pulling", seconds=100),
        PhaseTook(phase="CheckingHardware", seconds=1),
        PhaseTook(phase="Starting", seconds=20),
    ]
    again = told(starting([on_its_way(restarts=1)], a=loading))
    assert again is not None
    assert [p.phase for p in again.phases] == ["CheckingHardware", "Starting"]


def test_the_budget_says_where_it_comes_from() -> None:
    runtime = PLAN.runtime.model_copy(update={"startup_reason": "900 s, and 16,722 MiB at 25 MiB/s"})
    loading = {"vlm-0": report(phase=Phase.LOADING_WEIGHTS)}
    found = told(replace(SERVED, plan=PLAN.model_copy(update={"runtime": runtime}), pods=[pod()], reports=loading))
    assert found is not None
    assert found.budget_reason == "900 s, and 16,722 MiB at 25 MiB/s"
