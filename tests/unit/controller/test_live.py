"""Reading what is live."""

from __future__ import annotations

import json
from typing import Any

import pytest
from unit.render.samples import plan, sealed, service

from vlm_api.plan import PlanResources
from vlm_operator import render
from vlm_operator.controller.live import parse, parse_status, previous_plan
from vlm_operator.errors import InvalidInput


def live(**changes: Any) -> list[dict[str, Any]]:
    finished, template = sealed(plan(**changes), service())
    return render.objects(finished, template, service(), {"uid": "u"})


def test_a_plan_comes_back_as_it_was_stored():
    finished, template = sealed(plan(), service())
    stored = previous_plan(live())
    assert stored is not None
    assert (stored.plan, stored.pod_template) == (finished, template)


def test_the_plan_of_a_group_comes_back_too():
    stored = previous_plan(live(resources=PlanResources(devices_per_pod=8, pods=2)))
    assert stored is not None
    assert stored.plan.resources.pods == 2


def test_a_label_that_somebody_took_off_the_workload_does_not_lose_the_plan():
    objects = live()
    del objects[-1]["metadata"]["labels"]["vlmserve.dev/plan"]
    assert previous_plan(objects) is not None


def test_a_label_that_names_another_service_does_not_lose_the_plan():
    objects = live()
    owner = {"apiVersion": "vlmserve.dev/v1alpha1", "kind": "VLMService", "name": "vlm", "uid": "u", "controller": True}
    for found in objects:
        found["metadata"]["ownerReferences"] = [owner]
    objects[-1]["metadata"]["labels"]["vlmserve.dev/service"] = "debug"
    assert previous_plan(objects) is not None


def test_a_plan_of_a_newer_operator_is_read_without_what_is_unknown():
    objects = live()
    data = objects[0]["data"]
    data["plan.json"] = json.dumps({**json.loads(data["plan.json"]), "later": 1})
    assert previous_plan(objects) is not None


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense"])
def test_a_plan_that_cannot_be_read_is_none(text):
    objects = live()
    objects[0]["data"]["plan.json"] = text
    assert previous_plan(objects) is None


def test_without_a_workload_there_is_no_previous_plan():
    assert previous_plan(live()[:1]) is None
    assert previous_plan(live()[1:]) is None


def test_a_spec_that_cannot_be_read_is_an_error_with_its_path():
    raw = {"metadata": {"name": "vlm"}, "spec": {"model": {"uri": "hf://a/b"}, "workload": {"concurrency": "many"}}}
    with pytest.raises(InvalidInput) as refused:
        parse(raw)
    assert refused.value.path == "spec.workload.concurrency"
    assert "many" in str(refused.value)


def test_a_password_in_a_url_is_not_repeated_in_the_status():
    raw = {"metadata": {"name": "vlm"}, "spec": {"model": {"uri": "https://user:hunter2@hub.example.com/a"}}}
    with pytest.raises(InvalidInput) as refused:
        parse(raw)
    assert "[redacted]@hub.example.com" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_status_of_another_version_is_read_as_far_as_it_goes():
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "later": 1,
    }
    found = parse_status({"status": {"conditions": [condition], "later": {}}})
    assert found is not None
    assert found.conditions[0].reason == "Serving"
    assert parse_status({"status": {"conditions": "none"}}) is None
    assert parse_status({}) is None
