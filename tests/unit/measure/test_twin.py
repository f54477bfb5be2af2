"""Twins: what one setting's change is, when it is refused, and what the twin looks like."""

from __future__ import annotations

from typing import Any

import pytest
from unit.cli.builders import H100, node
from unit.cli.builders import service as manifest

from vlm_api.status import PlanStatus, VLMService
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.nodes import node_facts
from vlm_operator.measure.twin import (
    Change,
    differences,
    each_change,
    parse_set,
    refusal,
    setting_change,
    twin_manifest,
    twin_name,
    without_change,
)
from vlm_operator.planning import Cluster, make_plan

WORKLOAD = {"concurrency": 400, "images": {"width": 512, "height": 512, "reuse": "SingleUse"}}


def raw(**spec: Any) -> dict[str, Any]:
    made = manifest("qwen3-vl", workload=WORKLOAD, **spec)
    return {**made, "metadata": {"name": "qwen3-vl", "namespace": "team", "uid": "u"}}


def planned(**spec: Any) -> tuple[VLMService, PlanStatus]:
    service = VLMService.model_validate(raw(**spec))
    plan = make_plan(service, cluster(), runtime_image="vlm-operator")
    return service, PlanStatus(settings=plan.settings)


def cluster(devices: int = 8, used: int = 0) -> Cluster:
    return Cluster(
        nodes=(node_facts(node(labels=H100, devices=devices), [], "nvidia.com/gpu"),), in_use={"hopper": used}
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("radix_eviction_policy", "lru"),
        ("prefill_decode_interval", 0),
        ("mm_feature_transport", "cpu"),
        ("decode_attention_backend", "fa3"),
        ("SGLANG_VLM_CACHE_SIZE_MB", 100),
    ],
)
def test_without_a_measured_value_the_twin_is_told_the_untuned_one(name: str, value: Any) -> None:
    change = without_change(*planned(), name)
    assert change.value == value
    assert change.planned != value
    assert change.label == f"{name}={value}"


def test_without_a_users_value_it_is_taken_out_of_the_spec() -> None:
    settings = {"engine": {"settings": {"chunked_prefill_size": 4096, "page_size": 16}}}
    change = without_change(*planned(**settings), "page_size")
    assert (change.value, change.label) == (None, "without page_size")
    made = twin_manifest(raw(**settings), change, name="t", owner={"uid": "job"})
    assert made["spec"]["engine"]["settings"] == {"chunked_prefill_size": 4096}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("max_running_requests", "compare with a value: --set max_running_requests=VALUE"),
        ("attention_backend", "does not set attention_backend; it sets: "),
        ("no_such_setting", "does not set no_such_setting"),
    ],
)
def test_what_cannot_be_left_out_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        without_change(*planned(), name)


def test_on_a_cpu_a_twin_that_keeps_a_core_busy_while_it_waits_is_refused() -> None:
    with pytest.raises(InvalidInput, match="weighs on the other; compare with a value: --set sleep_on_idle=VALUE"):
        without_change(*planned(hardware={"device": "cpu"}), "sleep_on_idle")


def test_each_goes_through_the_applied_settings_and_tells_what_it_leaves_aside() -> None:
    service, plan = planned()
    changes, passed = each_change(service, plan)
    applied = [s.name for s in plan.settings if s.applied]
    assert len(changes) + len(passed) == len(applied)
    assert {"radix_eviction_policy", "prefill_decode_interval"} <= {c.name for c in changes}
    assert any("max_running_requests" in why for why in passed)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=true", True), ("a=lru", "lru"), ('a={"image": 2}', {"image": 2}), ("a=b=c", "b=c")],
)
def test_values_are_read_as_in_yaml(text: str, value: Any) -> None:
    assert parse_set(text) == ("a", value)


@pytest.mark.parametrize("text", ["a", "=1", "a=", "a={1"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--set"):
        parse_set(text)


def test_the_value_that_is_there_already_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is 22 in qwen3-vl already"):
        setting_change(*planned(), "prefill_decode_interval", 22)


def test_the_twin_is_one_replica_of_the_same_and_goes_with_the_job() -> None:
    change = Change("prefill_decode_interval", 0, 22)
    live = raw(scaling={"minReplicas": 1, "maxReplicas": 4}, metrics={"podMonitor": True})
    made = twin_manifest(live, change, name="qwen3-vl-ab12cd", owner={"uid": "job"})
    assert made["metadata"]["ownerReferences"] == [{"uid": "job"}]
    assert made["metadata"]["namespace"] == "team"
    spec = made["spec"]
    assert (spec["replicas"], spec["model"]["name"]) == (1, "qwen3-vl")
    assert not {"scaling", "metrics"} & spec.keys()
    assert spec["engine"]["settings"] == {"prefill_decode_interval": 0}
    assert spec["workload"] == WORKLOAD
    assert "settings" not in (live["spec"].get("engine") or {})
    VLMService.model_validate(made)


def test_a_twins_name_is_short_enough_for_a_service() -> None:
    assert twin_name("qwen3-vl", "ab12cd") == "qwen3-vl-ab12cd"
    assert len(twin_name("a" * 40, "ab12cd")) == 40
    assert twin_name("a" * 32 + "-bcdefgh", "ab12cd") == "a" * 32 + "-ab12cd"


def twin_plan(used: int) -> Any:
    made = twin_manifest(raw(), Change("prefill_decode_interval", 0, 22), name="qwen3-vl-ab12cd", owner={})
    return make_plan(VLMService.model_validate(made), cluster(used=used), runtime_image="vlm-operator")


def test_a_twin_is_refused_with_the_reason_when_no_device_is_free() -> None:
    assert refusal(twin_plan(used=7)) is None
    assert (refusal(twin_plan(used=8)) or "").startswith("0 devices are free on these nodes now and one copy takes 1")


def test_what_follows_from_a_change_is_told() -> None:
    _, ours = planned()
    change = Change("SGLANG_VLM_CACHE_SIZE_MB", 100, 0)
    made = twin_manifest(raw(), change, name="t", owner={})
    theirs = make_plan(VLMService.model_validate(made), cluster(), runtime_image="vlm-operator")
    found = {name: (one, two) for name, one, two in differences(ours.settings, theirs.settings)}
    assert found["SGLANG_VLM_CACHE_SIZE_MB"][1] in (100, "100")
    assert found["mm_feature_transport"][0] == "cuda_ipc"
