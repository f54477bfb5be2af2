"""The autoscaler's condition, and the number of replicas that is requested."""

from dataclasses import replace
from typing import Any

import pytest
from unit.controller.observations import observed
from unit.manifests.samples import service

from vlm_operator.controller.status.conditions import scaling_active
from vlm_operator.controller.status.replicas import Replicas


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
def test_the_autoscalers_report_is_a_condition(found, verdict):
    active = scaling_active(4, found)
    assert (active.status.value, active.reason) == verdict


def test_an_autoscaler_at_its_maximum_says_so():
    found = autoscaler("True", "ValidMetricFound")
    found["status"]["conditions"].append({"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"})
    active = scaling_active(4, found)
    assert active.reason == "AutoscalerActive"
    assert "more than 4 replicas: raise spec.scaling.maxReplicas" in active.message
    # At its minimum it is limited as well, which is fine.
    found["status"]["conditions"][-1]["reason"] = "TooFewReplicas"
    assert "more than" not in scaling_active(4, found).message


def test_a_missing_adapter_is_reported_in_the_autoscalers_words_with_a_next_step():
    words = "unable to get metric vlmserve_requests_in_flight: no metrics returned from custom metrics API"
    message = scaling_active(4, autoscaler("False", "FailedGetPodsMetric", words)).message
    assert words in message
    assert "docs/autoscaling.md" in message


@pytest.mark.parametrize(
    ("spec", "found", "number"),
    [
        ({}, observed(), 1),
        ({"replicas": 3}, observed(), 3),
        ({"replicas": 3, "suspend": True}, observed(), 0),
        ({"scaling": {"minReplicas": 2, "maxReplicas": 4}}, observed(), 2),
        ({"scaling": {"minReplicas": 2, "maxReplicas": 4}}, observed(workload={}, replicas=Replicas(wanted=4)), 4),
        ({"replicas": 3}, observed(workload={}, replicas=Replicas(wanted=0)), 0),
    ],
)
def test_desired_is_the_number_that_is_requested(spec, found, number):
    assert replace(found, spec=service(**spec).spec).desired_replicas == number
