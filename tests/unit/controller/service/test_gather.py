"""Gathering what exists of a service."""

import copy
import json
from typing import Any

import pytest
from unit.controller.fakes import AtOnce
from unit.controller.live import KEY, RAW, cache_of, gathered, rendered
from unit.manifests.samples import plan, sealed, service

from vlm_api.plan import PlanResources
from vlm_operator.controller.service.gather import gather, parse, parse_status
from vlm_operator.controller.service.reports import Reports
from vlm_operator.errors import InvalidInput
from vlm_operator.plan.stored import StoredPlan

GROUPED = plan(resources=PlanResources(devices_per_pod=8, pods=2))


def stored(*live: dict[str, Any]) -> StoredPlan | None:
    (pool,) = gathered(*live).pools
    return pool.stored


def one(kind: str, live: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [o for o in live if o["kind"] == kind]
    return found


def router(name: str, **labels: str) -> dict[str, Any]:
    """A second Deployment of the same service, beside its pools."""
    found = copy.deepcopy(one("Deployment", rendered(plan())))
    found["metadata"] |= {"name": name, "uid": name}
    del found["spec"]["template"]["metadata"]["labels"]["vlmserve.dev/plan"]
    found["spec"]["template"]["metadata"]["labels"] |= labels
    return found


def test_a_plan_comes_back_as_it_was_stored():
    finished, template = sealed(plan(), service())
    found = stored(*rendered(plan()))
    assert (found.plan, found.pod_template) == (finished, template)


def test_the_plan_of_a_group_comes_back_too():
    found = stored(*rendered(GROUPED))
    assert found.plan.resources.pods == 2


@pytest.mark.parametrize("made", [plan(), GROUPED], ids=["a Deployment", "a LeaderWorkerSet"])
@pytest.mark.parametrize(
    "beside",
    [router("vlm-router"), router("a-router"), router("vlm-l40s", **{"vlmserve.dev/pool": "l40s"})],
    ids=["the router", "one that sorts first", "another pool"],
)
def test_the_workload_of_a_pool_is_not_another_one_beside_it(made: Any, beside: dict[str, Any]):
    (pool,) = gathered(beside, *rendered(made)).pools
    assert pool.workload["metadata"]["name"] == ("vlm" if made.resources.pods == 1 else "vlm-group")
    assert pool.stored is not None


def test_a_workload_whose_pods_are_another_pool_s_is_not_this_pool_s():
    (pool,) = gathered(router("vlm", **{"vlmserve.dev/pool": "l40s"})).pools
    assert pool.workload is None


def test_objects_from_before_pools_had_labels_are_those_of_pool_main():
    live = rendered(plan())
    deployment = one("Deployment", live)
    for labels in (deployment["metadata"]["labels"], deployment["spec"]["template"]["metadata"]["labels"]):
        del labels["vlmserve.dev/pool"]
    assert stored(*live) is not None


@pytest.mark.parametrize("label", ["plan", "service", "pool"])
def test_a_label_of_the_workload_that_somebody_changes_does_not_lose_the_plan(label: str):
    live = rendered(plan())
    one("Deployment", live)["metadata"]["labels"][f"vlmserve.dev/{label}"] = "debug"
    assert stored(*live) is not None


def test_a_plan_of_a_newer_operator_is_read_without_what_is_unknown():
    live = rendered(plan())
    data = one("ConfigMap", live)["data"]
    data["plan.json"] = json.dumps({**json.loads(data["plan.json"]), "later": 1})
    assert stored(*live) is not None


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense"])
def test_a_plan_that_cannot_be_read_is_none(text: str):
    live = rendered(plan())
    one("ConfigMap", live)["data"]["plan.json"] = text
    assert stored(*live) is None


@pytest.mark.parametrize(
    "other",
    [
        {"service": {"name": "victim", "namespace": "default"}},
        {"service": {"name": "vlm", "namespace": "other"}},
        {"pool": "l40s"},
        {"hash": "0123456789"},
    ],
    ids=["service", "namespace", "pool", "hash"],
)
def test_a_plan_of_something_else_in_the_config_map_is_none(other: dict[str, Any]):
    live = rendered(plan())
    data = one("ConfigMap", live)["data"]
    data["plan.json"] = json.dumps({**json.loads(data["plan.json"]), **other})
    assert stored(*live) is None


def test_without_a_workload_or_its_plan_no_plan_is_in_force():
    for kind in ("Deployment", "ConfigMap"):
        assert stored(*(o for o in rendered(plan()) if o["kind"] != kind)) is None


def test_pods_are_those_of_their_pool_and_a_job_s_pod_is_not_among_them():
    def pod(name: str, **labels: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "2"}
        labels = {"vlmserve.dev/service": "vlm"} | {f"vlmserve.dev/{key}": value for key, value in labels.items()}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"labels": labels}}

    live = gathered(pod("a", pool="main"), pod("old"), pod("b", pool="l40s"), pod("job", component="inspect"))
    assert [p.name for p in live.pools[0].pods] == ["a", "old"]
    assert [p.name for p in live.pods] == ["a", "b", "old"]
    assert [p["metadata"]["name"] for p in live.job_pods] == ["job"]


def test_a_service_that_is_gone_or_being_deleted_is_none():
    for raw in ({**RAW, "metadata": {**RAW["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}, None):
        cache = cache_of(raw=raw or RAW)
        key = KEY if raw else KEY._replace(name="other")
        assert gather(cache, Reports(threads=AtOnce()), key) is None


def test_a_spec_that_cannot_be_parsed_still_has_its_live_objects():
    live = gathered(*rendered(plan()), raw={**RAW, "spec": {"model": 1}})
    assert live.invalid is not None
    assert live.pools[0].stored is not None


def test_a_spec_that_cannot_be_parsed_is_an_error_with_its_path():
    raw = {"metadata": {"name": "vlm"}, "spec": {"model": {"uri": "hf://a/b"}, "workload": {"concurrency": "many"}}}
    with pytest.raises(InvalidInput) as refused:
        parse(raw)
    assert refused.value.path == "spec.workload.concurrency"
    assert "many" in str(refused.value)


def test_a_status_of_another_version_is_read_without_what_is_unknown():
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "later": 1,
    }
    found = parse_status({"status": {"conditions": [condition], "later": {}}})
    assert found.conditions[0].reason == "Serving"
    assert parse_status({"status": {"conditions": "none"}}) is None
    assert parse_status({}) is None
