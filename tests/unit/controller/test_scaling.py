"""Who decides how many replicas there are."""

from __future__ import annotations

from typing import Any

import pytest
from unit.render.samples import service

from vlm_operator.controller.observed import Observed, Replicas
from vlm_operator.controller.scaling import LAST_APPLIED, desired, keep_count, scaling_active

WANTED = [{"kind": "Deployment", "metadata": {"name": "vlm"}, "spec": {"replicas": 1, "paused": False}}]


def live(**holder: str) -> dict[str, Any]:
    entry = {**holder, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return {"kind": "Deployment", "metadata": {"name": "vlm", "managedFields": [entry]}, "spec": {"replicas": 3}}


def counts(found: dict[str, Any], **spec: Any) -> list[Any]:
    return [m["spec"].get("replicas") for m in keep_count(WANTED, [found], service(**spec))]


def entry(operation: str, *fields: str) -> dict[str, Any]:
    return {"manager": "m", "operation": operation, "fieldsV1": {"f:spec": {f: {} for f in fields}}}


HANDED_OVER = live(manager="vlm-operator-handover")
AUTOSCALER = {"kind": "HorizontalPodAutoscaler"}


def test_a_number_that_an_autoscaler_left_stays_while_the_spec_says_none():
    assert counts(HANDED_OVER) == [None]
    assert counts(live(manager="vlm-operator")) == [1]
    (kept,) = keep_count(WANTED, [live(manager="other"), AUTOSCALER], service())
    assert "replicas" not in kept["spec"]
    assert WANTED[0]["spec"]["replicas"] == 1  # type: ignore[index]


def test_a_number_that_was_edited_by_hand_is_made_what_the_spec_says():
    assert counts(live(manager="kubectl-edit")) == [1]


@pytest.mark.parametrize("spec", [{"replicas": 2}, {"suspend": True}])
def test_a_number_that_the_spec_says_is_always_applied(spec):
    assert counts(HANDED_OVER, **spec) == [1]


@pytest.mark.parametrize(
    "metadata",
    [
        {"managedFields": [entry("Apply", "f:replicas", "f:model")]},
        {"managedFields": [entry("Update", "f:model"), entry("Update", "f:replicas")]},
        {"annotations": {LAST_APPLIED: '{"spec": {"replicas": 1}}'}},
    ],
    ids=["server-side", "a change", "client-side"],
)
def test_one_replica_that_somebody_has_applied_is_no_default(metadata):
    of = service(replicas=1)
    of.metadata.update(metadata)
    assert keep_count(WANTED, [HANDED_OVER], of)[0]["spec"].get("replicas") == 1


def test_the_default_of_whoever_created_the_service_is_no_number_that_was_said():
    of = service(replicas=1)
    of.metadata["managedFields"] = [entry("Update", "f:replicas", "f:model", "f:workload")]
    assert keep_count(WANTED, [HANDED_OVER], of)[0]["spec"].get("replicas") is None
    of.metadata["annotations"] = {LAST_APPLIED: '{"spec": {}}'}
    assert keep_count(WANTED, [HANDED_OVER], of)[0]["spec"].get("replicas") is None
    # What was scaled since is said beside what was applied.
    of.metadata["managedFields"].append(entry("Update", "f:replicas"))
    assert keep_count(WANTED, [HANDED_OVER], of)[0]["spec"].get("replicas") == 1


def autoscaler(status: str, reason: str, message: str = "m") -> dict[str, Any]:
    condition = {"type": "ScalingActive", "status": status, "reason": reason, "message": message}
    return {"kind": "HorizontalPodAutoscaler", "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (None, ("Unknown", "AutoscalerSilent")),
        (autoscaler("True", "ValidMetricFound"), ("True", "AutoscalerActive")),
        (autoscaler("False", "FailedGetPodsMetric"), ("False", "MetricMissing")),
        (autoscaler("False", "ScalingDisabled"), ("False", "AutoscalerOff")),
    ],
)
def test_what_the_autoscaler_says_of_its_metric_is_told(found, verdict):
    told = scaling_active(service(scaling={"maxReplicas": 4}), Observed(autoscaler=found))
    assert told is not None
    assert (told.status.value, told.reason) == verdict


def test_an_autoscaler_that_would_have_more_replicas_says_so():
    found = autoscaler("True", "ValidMetricFound")
    found["status"]["conditions"].append({"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"})
    told = scaling_active(service(scaling={"maxReplicas": 4}), Observed(autoscaler=found))
    assert told is not None
    assert told.reason == "AutoscalerActive"
    assert "would have more than 4 replicas: raise spec.scaling.maxReplicas" in told.message
    # At its fewest it is limited as well, and well.
    found["status"]["conditions"][-1]["reason"] = "TooFewReplicas"
    assert "more than" not in scaling_active(service(scaling={"maxReplicas": 4}), Observed(autoscaler=found)).message


def test_a_missing_adapter_is_told_in_the_autoscalers_own_words_with_a_next_step():
    words = "unable to get metric vlmserve_requests_in_flight: no metrics returned from custom metrics API"
    seen = Observed(autoscaler=autoscaler("False", "FailedGetPodsMetric", words))
    told = scaling_active(service(scaling={"maxReplicas": 4}), seen)
    assert told is not None
    assert words in told.message
    assert "docs/autoscaling.md" in told.message
    assert scaling_active(service(), seen) is None


@pytest.mark.parametrize(
    ("spec", "seen", "number"),
    [
        ({}, Observed(), 1),
        ({"replicas": 3}, Observed(), 3),
        ({"replicas": 3, "suspend": True}, Observed(), 0),
        ({"scaling": {"minReplicas": 2, "maxReplicas": 4}}, Observed(), 2),
        ({"scaling": {"minReplicas": 2, "maxReplicas": 4}}, Observed(workload={}, replicas=Replicas(wanted=4)), 4),
        ({"replicas": 3}, Observed(workload={}, replicas=Replicas(wanted=0)), 0),
    ],
)
def test_desired_is_the_number_that_is_truly_wanted(spec, seen, number):
    assert desired(service(**spec), seen) == number
