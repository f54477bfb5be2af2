"""What is remembered of the cluster: nodes, devices in use, the answers of runtimes."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from unit.controller.fakes import FakeClient
from unit.controller.test_reports import AtOnce

from vlm_api.report import Phase, Report
from vlm_operator.controller.inventory import Inventory
from vlm_operator.controller.pods import PodView
from vlm_operator.controller.queue import Key
from vlm_operator.controller.reports import SERVING_SECONDS, STARTING_SECONDS, Reports
from vlm_operator.controller.usage import FRESH_SECONDS, Usage
from vlm_operator.facts.nodes import node_facts
from vlm_operator.kube.client import ApiError

KEY = Key("default", "vlm")


def node(name: str = "n", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", **labels}},
        "spec": {},
        "status": {"allocatable": {"cpu": "1", "nvidia.com/gpu": "8"}, "conditions": [ready()]},
    }


def ready(status: str = "True", beat: str = "1") -> dict[str, str]:
    return {"type": "Ready", "status": status, "lastHeartbeatTime": beat}


NOISE: dict[str, Any] = {
    "a heartbeat": lambda n: n["status"].update(conditions=[ready(beat="2")]),
    "a timestamp label": lambda n: n["metadata"]["labels"].update({"nvidia.com/gfd.timestamp": "2"}),
    "images": lambda n: n["status"].update(images=[{"names": ["x"]}]),
    "free processors": lambda n: n["status"]["allocatable"].update(cpu="2"),
    "an annotation": lambda n: n["metadata"].update(annotations={"a": "b"}, resourceVersion="9"),
}
CHANGES: dict[str, Any] = {
    "a label": lambda n: n["metadata"]["labels"].update({"nvidia.com/gpu.product": "Tesla-T4"}),
    "a cordon": lambda n: n["spec"].update(unschedulable=True),
    "a taint": lambda n: n["spec"].update(taints=[{"key": "k", "effect": "NoSchedule"}]),
    "readiness": lambda n: n["status"].update(conditions=[ready("False")]),
    "healthy devices": lambda n: n["status"]["allocatable"].update({"nvidia.com/gpu": "7"}),
}


@pytest.mark.parametrize("change", NOISE.values(), ids=NOISE.keys())
def test_what_means_nothing_for_a_plan_wakes_nobody(change):
    inventory = Inventory()
    inventory.see_node(node(), deleted=False)
    seen = node()
    change(seen)
    assert not inventory.see_node(seen, deleted=False)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_a_plan_depends_on_wakes_its_services(change):
    inventory = Inventory()
    inventory.see_node(node(), deleted=False)
    seen = node()
    change(seen)
    assert inventory.see_node(seen, deleted=False)
    assert not inventory.see_node(seen, deleted=False)


def test_a_node_that_goes_is_forgotten():
    inventory = Inventory()
    assert inventory.see_node(node(), deleted=False)
    assert [n.name for n in inventory.facts("nvidia.com/gpu")] == ["n"]
    assert inventory.see_node(node(), deleted=True)
    assert inventory.facts("nvidia.com/gpu") == ()
    assert inventory.labels("n") is None


def test_labels_that_thousands_of_nodes_bear_are_kept_once():
    inventory = Inventory()
    for name in ("a", "b"):
        inventory.see_node(
            json.loads(json.dumps(node(name, **{"example.com/a-label-of-all": "of-all-nodes"}))), deleted=False
        )
    one, other = (sorted((inventory.labels(name) or {}).items()) for name in ("a", "b"))
    assert one == other
    assert all(a is b for pair in zip(one, other, strict=True) for a, b in zip(*pair, strict=True))


def test_nodes_are_in_the_order_of_their_names_whatever_the_order_of_events():
    inventory = Inventory()
    for name in ("b", "c", "a"):
        inventory.see_node(node(name), deleted=False)
    assert [n.name for n in inventory.facts("nvidia.com/gpu")] == ["a", "b", "c"]


def test_the_operator_knows_as_much_of_a_node_as_a_plan_without_a_cluster():
    inventory = Inventory()
    large = node()
    large["status"]["allocatable"] |= {"memory": "515Gi", "ephemeral-storage": "1Ti"}
    inventory.see_node(large, deleted=False)
    (seen,) = inventory.facts("nvidia.com/gpu")
    assert seen == node_facts(large, [], "nvidia.com/gpu")
    assert seen.memory_mib == 515 * 1024


def test_slices_of_other_drivers_wake_nobody():
    inventory = Inventory()
    other = {"metadata": {"name": "s"}, "spec": {"driver": "net.example", "nodeName": "n"}}
    gpus = {"metadata": {"name": "g"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "n", "devices": []}}
    assert not inventory.see_slice(other, deleted=False)
    assert inventory.see_slice(gpus, deleted=False)
    assert inventory.see_slice(gpus, deleted=True)


def running(name: str, gpus: int, namespace: str = "other", service: str = "", init: int = 0) -> dict[str, Any]:
    def container(number: int) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": str(number)}}}

    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"vlmserve.dev/service": service}},
        "spec": {"nodeName": "n", "containers": [container(gpus)], "initContainers": [container(init)]},
    }


def test_devices_of_others_are_counted_and_the_services_own_are_not():
    client = FakeClient()
    for pod in (running("a", 2), running("b", 1, init=3), running("own", 4, "default", "vlm")):
        client.add(pod)
    assert dict(Usage(client).of("nvidia.com/gpu", "default", "vlm")) == {"n": 5}
    assert dict(Usage(client).of("nvidia.com/gpu", "other", "vlm")) == {"n": 9}
    assert dict(Usage(client).of("amd.com/gpu", "other", "vlm")) == {}


def test_pods_are_read_only_when_somebody_looks_and_not_for_each_look():
    client, now = FakeClient(), [0.0]
    reads: list[Any] = []
    listing = client.list
    client.list = lambda *a, **k: reads.append(a) or listing(*a, **k)  # type: ignore[method-assign]
    usage = Usage(client, clock=lambda: now[0])
    use = usage.of("nvidia.com/gpu", "default", "vlm")
    assert reads == []
    assert len(use) == 0
    dict(usage.of("nvidia.com/gpu", "default", "other"))
    assert len(reads) == 1
    now[0] += FRESH_SECONDS + 1
    dict(usage.of("nvidia.com/gpu", "default", "vlm"))
    assert len(reads) == 2


def test_where_reading_the_cluster_s_pods_takes_long_it_is_done_less_often():
    client, now, reads = FakeClient(), [0.0], list[float]()
    listing = client.list

    def slowly(*of: Any, **more: Any) -> Any:
        reads.append(now[0])
        now[0] += 4.0
        return listing(*of, **more)

    client.list = slowly  # type: ignore[method-assign]
    usage = Usage(client, clock=lambda: now[0])
    while now[0] < 400:
        dict(usage.of("nvidia.com/gpu", "default", "vlm"))
        now[0] += 1.0
    assert 9 <= len(reads) <= 10, reads


def test_services_that_plan_at_the_same_time_read_the_cluster_s_pods_once():
    client, reads = FakeClient(), list[Any]()
    listing = client.list

    def slowly(*of: Any, **more: Any) -> Any:
        reads.append(of)
        time.sleep(0.1)
        return listing(*of, **more)

    client.list = slowly  # type: ignore[method-assign]
    usage = Usage(client)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: dict(usage.of("nvidia.com/gpu", "default", f"vlm-{n}")), range(4)))
    assert found == [{}] * 4
    assert len(reads) == 1


def test_an_operator_of_a_few_namespaces_counts_what_it_may_see():
    client = FakeClient()
    client.add(running("a", 2, "mine"))
    client.add(running("b", 2, "theirs"))
    listing = client.list

    def allowed(kind: Any, namespace: str | None = None, **more: Any) -> Any:
        if namespace in (None, "gone"):
            raise ApiError(403, "Forbidden", "no")
        return listing(kind, namespace, **more)

    client.list = allowed  # type: ignore[method-assign]
    assert dict(Usage(client, ["mine"]).of("nvidia.com/gpu", "x", "y")) == {"n": 2}
    assert dict(Usage(client, ["gone", "mine"]).of("nvidia.com/gpu", "x", "y")) == {"n": 2}
    with pytest.raises(ApiError):
        dict(Usage(client).of("nvidia.com/gpu", "x", "y"))


class Runtimes:
    """Pods' runtimes, and how often they were asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.silent = False
        self.now = 0.0

    def __call__(self, address: str) -> Report | None:
        self.asked += 1
        if self.silent:
            return None
        return Report(plan_hash="abc", phase=Phase.READY, ready=True, elapsed_seconds=1, budget_seconds=900, asked=True)


def pod(**changes: Any) -> PodView:
    common: dict[str, Any] = {
        "name": "vlm-0",
        "uid": "u",
        "plan_hash": "abc",
        "node": "n",
        "address": "10.0.0.1",
        "ready": True,
        "running": True,
        "restarts": 0,
        "leader": True,
        "deleting": False,
        "unschedulable": None,
        "failure": None,
    }
    return PodView(**common | changes)


@pytest.fixture
def runtimes() -> Runtimes:
    return Runtimes()


@pytest.fixture
def reports(runtimes: Runtimes) -> Reports:
    return Reports(runtimes, lambda: runtimes.now, threads=AtOnce())


def test_a_pod_that_serves_is_asked_rarely(runtimes, reports):
    for _ in range(5):
        assert list(reports.of(KEY, [pod()])) == ["vlm-0"]
        runtimes.now += SERVING_SECONDS / 10
    assert runtimes.asked == 1
    runtimes.now += SERVING_SECONDS
    reports.of(KEY, [pod()])
    assert runtimes.asked == 2


def test_a_pod_is_asked_when_its_readiness_changes_or_it_restarts(runtimes, reports):
    for state in ({"ready": False}, {"ready": True}, {"ready": True, "restarts": 1}):
        reports.of(KEY, [pod(**state)])
    assert runtimes.asked == 3


def test_a_pod_on_its_way_is_asked_again_soon(runtimes, reports):
    reports.of(KEY, [pod(ready=False)])
    runtimes.now += STARTING_SECONDS * 0.9  # the soonest that the queue brings the service again
    reports.of(KEY, [pod(ready=False)])
    assert runtimes.asked == 2


def test_the_phase_of_a_pod_on_its_way_is_at_most_six_seconds_old():
    assert STARTING_SECONDS * 1.1 < 6


def test_a_runtime_that_does_not_answer_is_no_report_and_no_error(runtimes, reports):
    runtimes.silent = True
    assert reports.of(KEY, [pod()]) == {}


@pytest.mark.parametrize("state", [{"address": None}, {"running": False}, {"deleting": True}])
def test_pods_that_cannot_answer_are_not_asked(runtimes, reports, state):
    assert reports.of(KEY, [pod(**state)]) == {}
    assert runtimes.asked == 0


def test_pods_that_are_gone_are_forgotten(runtimes, reports):
    reports.of(KEY, [pod()])
    reports.of(KEY, [])
    reports.of(KEY, [pod()])
    assert runtimes.asked == 2
    reports.forget(KEY)
    reports.of(KEY, [pod()])
    assert runtimes.asked == 3
