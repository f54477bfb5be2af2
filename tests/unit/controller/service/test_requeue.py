"""When a service is reconciled again without an event."""

from typing import Any

import pytest
from unit.controller.live import RAW
from unit.controller.observations import PLAN, SERVED, observed, pod
from unit.manifests.samples import service
from unit.plan.builders import request_of

from vlm_api.inspection import Inspection
from vlm_api.plan import Finding, Severity
from vlm_api.report import Failure
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service import requeue
from vlm_operator.controller.service.gather import LivePool, LiveService
from vlm_operator.controller.service.inspect_model import RETRY_SECONDS
from vlm_operator.controller.service.observe import DEBOUNCE_SECONDS
from vlm_operator.controller.service.reports import STARTING_SECONDS
from vlm_operator.controller.service.requeue import requeue_after
from vlm_operator.controller.status.observation import Observation, PoolObservation, Problem


def after(*pools: PoolObservation, **live: Any) -> float:
    of = service()
    found = LiveService(Key("default", "vlm"), RAW, of, pools=(LivePool(request_of(of)),), **live)
    return requeue_after(Observation(pools), found, {"j"})


def refused(reason: str) -> PoolObservation:
    error = Finding(severity=Severity.ERROR, reason=reason, about="Cluster", message="no", path="spec.model")
    return observed(plan=PLAN.model_copy(update={"findings": [error]}))


UNREAD = Inspection(digest="d", failure=Failure(reason="ModelAccessDenied", message="m"))


@pytest.mark.parametrize(
    ("pool", "seconds"),
    [
        (SERVED, requeue.RESYNC_SECONDS),
        (observed(plan=PLAN, pods=[pod()]), STARTING_SECONDS),
        (observed(plan=PLAN, pods=[pod(deleting=True)]), requeue.RESYNC_SECONDS),
        (observed(plan=PLAN, pods=[pod(running=False, scheduled_at="2026-01-01T00:00:00Z")]), requeue.PULLING_SECONDS),
        (observed(plan=PLAN, debouncing=True), DEBOUNCE_SECONDS * 1.2),
        (observed(inspecting="the Job"), requeue.INSPECTING_SECONDS),
        (observed(plan=PLAN, inspection=UNREAD), RETRY_SECONDS),
        (observed(plan=PLAN, problem=Problem("NameTaken", "m")), requeue.POLL_SECONDS),
        # Planning again reads all pods of the cluster.
        (refused("OutOfDeviceMemory"), requeue.RESYNC_SECONDS),
        (refused("LeaderWorkerSetMissing"), requeue.POLL_SECONDS),
        (refused("ClaimForOnePod"), requeue.POLL_SECONDS),
        (refused("ClaimNotFound"), requeue.POLL_SECONDS),
    ],
)
def test_each_state_has_its_wait_and_the_shortest_of_all_pools_counts(pool: PoolObservation, seconds: float):
    assert after(pool) == seconds
    assert after(SERVED, pool) == seconds


def test_a_pod_that_may_report_its_settings_soon_is_asked_again_soon():
    assert after(SERVED, reports_unsettled=True) == STARTING_SECONDS


def test_a_job_that_is_to_go_is_looked_for_soon_but_not_without_end():
    job: dict[str, Any] = {"kind": "Job", "metadata": {"name": "j"}}
    going = {"kind": "Job", "metadata": {"name": "j", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert after(SERVED, jobs=[job]) == requeue.TIDY_SECONDS
    assert after(SERVED, jobs=[going]) == requeue.RESYNC_SECONDS, "a finalizer of somebody else holds it"
    left = {"kind": "Job", "metadata": {"name": "another"}}
    assert after(refused("DoesNotFit"), jobs=[left]) == requeue.RESYNC_SECONDS, "as after a refused write"
    assert after(observed(inspecting="the Job"), jobs=[job]) == requeue.INSPECTING_SECONDS
    assert after(observed(problem=Problem("NotApplied", "m")), jobs=[job]) == requeue.POLL_SECONDS
