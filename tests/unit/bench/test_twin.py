"""Twins: what one setting's change is, when it is refused, and what the twin looks like."""

from __future__ import annotations

from typing import Any

import pytest
from unit.cli.builders import H100, node
from unit.cli.builders import service as manifest
from unit.plan.builders import request_of

from vlm_api.plan import ServingPlan
from vlm_api.status import PlanStatus, VLMService
from vlm_bench.twins.contrast import contrast, differences, no_room, refusal
from vlm_bench.twins.twin import (
    Change,
    each_change,
    parse_set,
    setting_change,
    twin_manifest,
    twin_name,
    without_change,
)
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.nodes.node import node_facts
from vlm_operator.facts.types import Cluster
from vlm_operator.plan.make import make_plan

WORKLOAD = {"concurrency": 400, "images": {"width": 512, "height": 512, "reuse": "SingleUse"}}


def raw(**spec: Any) -> dict[str, Any]:
    made = manifest("qwen3-vl", workload=WORKLOAD, **spec)
    return {**made, "metadata": {"name": "qwen3-vl", "namespace": "team", "uid": "u"}}


def planned(**spec: Any) -> tuple[VLMService, PlanStatus]:
    service = VLMService.model_validate(raw(**spec))
    plan = make_plan(request_of(service), cluster(), runtime_image="vlm-operator")
    return service, in_force(plan)


def in_force(plan: ServingPlan) -> PlanStatus:
    return PlanStatus(engine=plan.engine, hardware=plan.hardware, settings=plan.settings)


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
        ("attention_backend", "does not set attention_backend: choose one that it sets"),
        ("no_such_setting", "does not set no_such_setting"),
    ],
)
def test_what_cannot_be_left_out_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        without_change(*planned(), name)


def test_on_a_cpu_a_twin_that_keeps_a_core_busy_while_it_waits_is_refused() -> None:
    with pytest.raises(InvalidInput, match="slows the other; compare with a value: --set sleep_on_idle=VALUE"):
        without_change(*planned(hardware={"device": "cpu"}), "sleep_on_idle")


def test_each_goes_through_the_applied_settings_and_tells_what_it_leaves_aside() -> None:
    service, plan = planned()
    changes, passed = each_change(service, plan)
    applied = [s.name for s in plan.settings if s.applied]
    assert len(changes) + len(passed) == len(applied)
    assert {"radix_eviction_policy", "prefill_decode_interval"} <= {c.name for c in changes}
    assert any("max_running_requests" in why for why in passed)


def test_no_twin_is_made_that_has_half_of_a_certificate() -> None:
    args = ["--ssl-certfile", "/tls/tls.crt", "--ssl-keyfile", "/tls/tls.key"]
    changes, passed = each_change(*planned(engine={"args": args}))
    assert not any(change.name.startswith("ssl") for change in changes)
    told = "cannot be left out: the engine starts with a certificate and its key, or with neither"
    assert sum(told in why for why in passed) == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=true", True), ("a=lru", "lru"), ('a={"image": 2}', {"image": 2}), ("a=b=c", "b=c")],
)
def test_values_are_read_as_in_yaml(text: str, value: Any) -> None:
    assert parse_set(text) == ("a", value)


@pytest.mark.parametrize("text", ["a", "=1", "a=", "a={1", "a=null", "a=~"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--set"):
        parse_set(text)


def test_the_value_that_is_there_already_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is 22 in qwen3-vl already"):
        setting_change(*planned(), "prefill_decode_interval", 22)


def test_the_twin_has_as_many_replicas_of_the_same_and_goes_with_the_job() -> None:
    change = Change("prefill_decode_interval", 0, 22)
    live = raw(scaling={"minReplicas": 1, "maxReplicas": 4}, metrics={"podMonitor": True})
    made = twin_manifest(live, change, name="qwen3-vl-ab12cd", owner={"uid": "job"}, replicas=3)
    assert made["metadata"]["ownerReferences"] == [{"uid": "job"}]
    assert made["metadata"]["namespace"] == "team"
    spec = made["spec"]
    assert (spec["replicas"], spec["model"]["name"]) == (3, "qwen3-vl")
    assert not {"scaling", "metrics"} & spec.keys()
    assert spec["engine"]["settings"] == {"prefill_decode_interval": 0}
    assert spec["workload"] == WORKLOAD
    assert "settings" not in (live["spec"].get("engine") or {})
    VLMService.model_validate(made)


def test_a_twins_name_is_short_enough_for_a_service() -> None:
    assert twin_name("qwen3-vl", "ab12cd") == "qwen3-vl-ab12cd"
    assert len(twin_name("a" * 40, "ab12cd")) == 40
    assert twin_name("a" * 32 + "-bcdefgh", "ab12cd") == "a" * 32 + "-ab12cd"


def twin_plan(used: int, nodes: Cluster | None = None, **spec: Any) -> ServingPlan:
    made = twin_manifest(raw(**spec), Change("prefill_decode_interval", 0, 22), name="qwen3-vl-ab12cd", owner={})
    return make_plan(
        request_of(VLMService.model_validate(made)), nodes or cluster(used=used), runtime_image="vlm-operator"
    )


def test_a_twin_is_refused_with_the_reason_when_no_device_is_free() -> None:
    assert refusal(twin_plan(used=7)) is None
    assert (refusal(twin_plan(used=8)) or "").startswith("0 devices are free on these nodes now")


def test_what_follows_from_a_change_is_told() -> None:
    _, ours = planned()
    change = Change("SGLANG_VLM_CACHE_SIZE_MB", 100, 0)
    made = twin_manifest(raw(), change, name="t", owner={})
    theirs = make_plan(request_of(VLMService.model_validate(made)), cluster(), runtime_image="vlm-operator")
    found = {name: (one, two) for name, one, two in differences(ours.settings, theirs.settings)}
    assert found["SGLANG_VLM_CACHE_SIZE_MB"][1] in (100, "100")
    assert found["mm_feature_transport"][0] == "cuda_ipc"


def of_twin(change: Change, nodes: Cluster | None = None, **spec: Any) -> PlanStatus:
    """What the operator plans for the twin of the service with that spec."""
    _, ours = planned(**spec)
    made = twin_manifest(raw(**spec), change, name="qwen3-vl-ab12cd", owner={}, plan=ours)
    service = VLMService.model_validate(made)
    return in_force(make_plan(request_of(service), nodes or cluster(), runtime_image="vlm-operator"))


def test_a_twin_that_would_be_the_same_is_refused() -> None:
    spec = {"engine": {"settings": {"prefill_decode_interval": 22}}}
    change = without_change(*planned(**spec), "prefill_decode_interval")
    found = contrast(planned(**spec)[1], of_twin(change, **spec), change)
    assert found.refusal is not None
    assert found.refusal.startswith("without your value the plan sets prefill_decode_interval to 22 as well")
    assert "--set prefill_decode_interval=VALUE" in found.refusal


def test_without_a_users_value_the_twin_is_called_by_what_its_plan_has_instead() -> None:
    spec = {"engine": {"settings": {"prefill_decode_interval": 5}}}
    change = without_change(*planned(**spec), "prefill_decode_interval")
    found = contrast(planned(**spec)[1], of_twin(change, **spec), change)
    assert (found.refusal, found.others) == (None, ())
    assert found.change is not None
    assert (found.change.planned, found.change.measured, found.change.label) == (5, 22, "prefill_decode_interval=22")


SAID = [
    {"engine": {"args": ["--log-requests", "--prefill-decode-interval", "5", "--page-size=16"]}},
    {"engine": {"args": ["--prefill-decode-interval=5"], "settings": {"prefill_decode_interval": 5}}},
    {"template": {"spec": {"containers": [{"name": "main", "args": ["--prefill-decode-interval", "5"]}]}}},
]


@pytest.mark.parametrize("spec", SAID)
def test_a_value_is_replaced_wherever_the_user_said_it(spec: dict[str, Any]) -> None:
    service, ours = planned(**spec)
    for change, value in (
        (setting_change(service, ours, "prefill_decode_interval", 7), 7),
        (without_change(service, ours, "prefill_decode_interval"), 22),
    ):
        theirs = of_twin(change, **spec)
        assert differences(ours.settings, theirs.settings) == [("prefill_decode_interval", 5, value)]
        assert theirs.engine is not None
        assert "5" not in theirs.engine.args


def test_a_variable_is_replaced_wherever_the_user_said_it() -> None:
    name = "SGLANG_VLM_CACHE_SIZE_MB"
    variable = {"name": name, "value": "50"}
    for spec in (
        {"engine": {"env": [variable, {"name": "OTHER", "value": "1"}]}},
        {"template": {"spec": {"containers": [{"name": "main", "env": [variable]}]}}},
    ):
        service, ours = planned(**spec)
        theirs = of_twin(setting_change(service, ours, name, 70), **spec)
        assert (name, 50, 70) in differences(ours.settings, theirs.settings)


def test_a_setting_may_be_called_by_the_name_that_the_services_version_has() -> None:
    spec = {"engine": {"version": "0.5.9"}}
    change = setting_change(*planned(**spec), "cuda_graph_max_bs", 64)
    assert change.name == "cuda_graph_max_bs_decode"
    found = contrast(planned(**spec)[1], of_twin(change, **spec), change)
    assert found.refusal is None


L40S = H100 | {
    "nvidia.com/gpu.product": "NVIDIA-L40S", "nvidia.com/gpu.memory": "46068", "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "9",
}  # fmt: skip


def both_kinds(ada_used: int) -> Cluster:
    ada, hopper = node("ada", L40S, 4), node("hopper", H100, 8)
    return Cluster(nodes=tuple(node_facts(n, [], "nvidia.com/gpu") for n in (ada, hopper)), in_use={"ada": ada_used})


def on_l40s() -> PlanStatus:
    only = Cluster(nodes=(node_facts(node("ada", L40S, 4), [], "nvidia.com/gpu"),), in_use={})
    return in_force(make_plan(request_of(VLMService.model_validate(raw())), only, runtime_image="vlm-operator"))


def test_a_twin_waits_for_the_gpus_of_its_service_though_better_ones_came_later() -> None:
    change = Change("radix_eviction_policy", "slru", "lru")
    made = twin_manifest(raw(), change, name="t", owner={}, plan=on_l40s())
    plan = make_plan(request_of(VLMService.model_validate(made)), both_kinds(1), runtime_image="vlm-operator")
    assert plan.hardware.product == "NVIDIA-L40S"
    full = make_plan(request_of(VLMService.model_validate(made)), both_kinds(4), runtime_image="vlm-operator")
    assert (refusal(full) or "").startswith("0 devices are free")


def test_a_twin_on_other_gpus_or_of_another_image_is_refused() -> None:
    change = Change("radix_eviction_policy", "slru", "lru")
    found = contrast(on_l40s(), of_twin(change), change)
    assert found.refusal is not None
    assert found.refusal.startswith("the service was planned for NVIDIA-L40S with 46,068 MiB, its twin for NVIDIA-H100")
    ours = planned()[1]
    assert ours.engine is not None
    older = ours.model_copy(update={"engine": ours.engine.model_copy(update={"image": "lmsysorg/sglang:v0.5.20"})})
    found = contrast(older, ours, change)
    assert "the service runs image lmsysorg/sglang:v0.5.20, its twin would run " in (found.refusal or "")
    held = twin_manifest(raw(), change, name="t", owner={}, plan=older)
    assert held["spec"]["engine"]["image"] == "lmsysorg/sglang:v0.5.20"


def test_what_differs_besides_the_change_is_told_with_both_values() -> None:
    change = Change("SGLANG_VLM_CACHE_SIZE_MB", 100, 0)
    found = contrast(planned()[1], of_twin(change), change)
    assert found.refusal is None
    said = found.note("qwen3-vl") or ""
    assert said.startswith("besides SGLANG_VLM_CACHE_SIZE_MB qwen3-vl and its twin differ in: ")
    assert "mm_feature_transport: cuda_ipc and " in said


@pytest.mark.parametrize(("replicas", "fits"), [(1, True), (2, True), (3, False)])
def test_as_many_replicas_as_the_service_has_need_devices_on_their_nodes(replicas: int, fits: bool) -> None:
    plan = twin_plan(0, parallelism={"tensor": 2})
    why = no_room(plan, [3, 2], replicas)
    assert (why is None) is fits
    assert fits or "it needs 3 pods of 2 devices, as many as the service, and these nodes have room for 2" in (
        why or ""
    )


def test_on_the_cpu_no_devices_are_counted() -> None:
    assert no_room(twin_plan(0, hardware={"device": "cpu"}), [], 9) is None
