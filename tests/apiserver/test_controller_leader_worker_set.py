"""Replicas that take several nodes, with the real kind LeaderWorkerSet (its controller does not run here)."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.operating import QWEN, SOON_SECONDS, Operator, World, eventually, settled_writes

from minicluster.paths import SHARE
from vlm_operator.controller.service.observe import DEBOUNCE_SECONDS

TWO_NODES: dict[str, Any] = {
    "model": {**QWEN, "uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct", "parametersBillion": 235},
    "parallelism": {"tensor": 16},
    "multinode": {"nodeCount": 2},
    "workload": {"concurrency": 64},
}
NODES, OPTIONS = ("group-a", "group-b"), ("--no-leader-election",)
pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(scope="module")
def kinds(kubectl: Any) -> Iterator[None]:
    kubectl("apply", "--server-side", "-f", str(SHARE / "lws-crds.yaml"))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(SHARE / "lws-crds.yaml"))
    yield
    kubectl("delete", "--wait=false", "-f", str(SHARE / "lws-crds.yaml"))


@pytest.fixture(scope="module")
def operator(kinds: None, operator: Operator) -> Operator:
    return operator


def group(world: World) -> dict[str, Any]:
    return world.get("leaderworkerset", "vlm-group")


def test_a_replica_of_two_nodes_is_a_group_that_the_api_server_accepts(world: World):
    world.apply(**TWO_NODES, replicas=2)
    spec = eventually(lambda: group(world))["spec"]
    assert spec["replicas"] == 2
    assert spec["leaderWorkerTemplate"]["size"] == 2
    main = spec["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]
    assert main["resources"]["limits"]["nvidia.com/gpu"] in ("8", 8)
    assert not world.exists("deployment")
    selector = world.get("service")["spec"]["selector"]
    assert selector["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    world.wait_for("False", "Starting")


def test_the_groups_numbers_are_the_services_numbers(world: World):
    world.apply(**TWO_NODES)
    generation = eventually(lambda: group(world))["metadata"]["generation"]
    counts = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    world.status_of("leaderworkerset", "vlm-group", observedGeneration=generation, **counts)
    world.wait_for("True", "Serving")
    status = world.get("vlms")["status"]
    assert (status["readyReplicas"], status["availableReplicas"], status["updatedReplicas"]) == (1, 1, 1)


def test_a_group_that_stays_without_pods_is_reported_and_costs_no_further_write(
    world: World, kubectl: Any, operator: Operator
):
    world.apply(**TWO_NODES)
    world.wait_for("False", "Starting")
    message = world.wait_for("False", "PodsMissing", seconds=2 * DEBOUNCE_SECONDS + SOON_SECONDS)
    assert "0 of 2 pods" in message
    before, reconciled = settled_writes(kubectl), operator.metric("vlm_operator_reconciles_total")
    world("annotate", "leaderworkerset", "vlm-group", "somebody=else")
    eventually(lambda: operator.metric("vlm_operator_reconciles_total") > reconciled)
    assert settled_writes(kubectl) == before


def test_groups_from_before_pools_are_replaced_once(world: World):
    world.apply(**TWO_NODES)
    before = eventually(lambda: group(world))
    labels = {"vlmserve.dev/pool": None, "vlmserve.dev/role": None}
    patch = {"spec": {"leaderWorkerTemplate": {"workerTemplate": {"metadata": {"labels": labels}}}}}
    world("patch", "leaderworkerset", "vlm-group", "--type=merge", "-p", json.dumps(patch))
    eventually(lambda: group(world)["metadata"]["uid"] != before["metadata"]["uid"])
    template = group(world)["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    assert template["metadata"]["labels"].keys() >= labels.keys()
    events = json.loads(world("get", "events.events.k8s.io", "-o", "json"))["items"]
    assert [e["note"].split()[0] for e in events if e["reason"] == "WorkloadReplaced"] == ["LeaderWorkerSet/vlm-group"]


def test_a_service_that_shrinks_to_one_node_becomes_a_deployment_and_back(world: World):
    world.apply(**TWO_NODES)
    eventually(lambda: group(world))
    world.apply(workload={"concurrency": 64})
    eventually(lambda: world.exists("deployment") and not world.exists("leaderworkerset", "vlm-group"))
    assert "leaderworkerset.sigs.k8s.io/worker-index" not in world.get("service")["spec"]["selector"]
    world.apply(**TWO_NODES)
    eventually(lambda: world.exists("leaderworkerset", "vlm-group") and not world.exists("deployment"))


def test_autoscaling_scales_whole_groups(world: World):
    world.apply(**TWO_NODES, scaling={"maxReplicas": 3})
    target = eventually(lambda: world.get("hpa"))["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("LeaderWorkerSet", "vlm-group")
    world("scale", "leaderworkerset/vlm-group", "--replicas=2")
    world.apply(**TWO_NODES, scaling={"maxReplicas": 4})
    eventually(lambda: world.get("hpa")["spec"]["maxReplicas"] == 4)
    assert group(world)["spec"]["replicas"] == 2


def test_two_services_with_one_name_are_reported_and_the_first_is_left_alone(world: World):
    # The controller of LeaderWorkerSets takes any Service of a group's name for the one that it would make.
    world.apply("vlm-group", workload={"concurrency": 64})
    eventually(lambda: world.exists("service", "vlm-group"))
    before = world.get("service", "vlm-group")["metadata"]["resourceVersion"]
    world.apply(**TWO_NODES)
    assert "Service/vlm-group exists and belongs to VLMService/vlm-group" in world.wait_for("False", "NameTaken")
    assert not world.exists("leaderworkerset", "vlm-group")
    assert world.get("service", "vlm-group")["metadata"]["resourceVersion"] == before
    world("delete", "vlms", "vlm-group")
    world("delete", "service,deployment", "vlm-group")  # as the garbage collector does, which does not run here
    world("annotate", "vlms", "vlm", "look=again")  # which it does by itself, but only every half minute
    eventually(lambda: group(world), seconds=60)


def test_a_service_with_a_group_s_name_that_came_after_the_group_is_reported(world: World):
    world.apply(**TWO_NODES)
    eventually(lambda: group(world))
    # No controller runs here that would have made the group's own Service by now.
    world.apply("vlm-group", workload={"concurrency": 64})
    eventually(lambda: world.exists("service", "vlm-group"))
    world("annotate", "leaderworkerset", "vlm-group", "somebody=else")
    assert "pods of LeaderWorkerSet/vlm-group cannot find each other" in world.wait_for("False", "NameTaken")
    world.status_of("leaderworkerset", "vlm-group", readyReplicas=1, replicas=1)
    eventually(lambda: world.condition()[1] != "NameTaken")
