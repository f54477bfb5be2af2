"""Replicas that take several nodes, with the real kind LeaderWorkerSet (its controller does not run here)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.operating import QWEN, SOON_SECONDS, Operator, World, add_node, eventually, settled_writes

from minicluster.paths import SHARE
from vlm_operator.controller.lasting import DEBOUNCE_SECONDS

TWO_NODES: dict[str, Any] = {
    "model": {**QWEN, "uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct", "parametersBillion": 235},
    "parallelism": {"tensor": 16},
    "multinode": {"nodeCount": 2},
    "workload": {"concurrency": 64},
}


@pytest.fixture(scope="module")
def operator(api_server: Any, kubectl: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    kinds = ("--server-side", "-f", str(SHARE / "lws-crds.yaml"))
    kubectl("apply", *kinds)
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(SHARE / "lws-crds.yaml"))
    for name in ("group-a", "group-b"):
        add_node(kubectl, name, "h100")
    started = Operator(api_server.kubeconfig, tmp_path_factory.mktemp("groups") / "log", "--no-leader-election").start()
    yield started
    assert started.stop() == 0, started.said()
    assert "Traceback" not in started.said()
    kubectl("delete", "node", "group-a", "group-b")
    kubectl("delete", "--wait=false", "-f", str(SHARE / "lws-crds.yaml"))


@pytest.fixture
def world(operator: Operator, kubectl: Any, namespace: str) -> World:
    return World(kubectl, namespace)


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


def test_a_group_without_pods_says_so_once_that_lasts_and_costs_no_further_write(
    world: World, kubectl: Any, operator: Operator
):
    world.apply(**TWO_NODES)
    world.wait_for("False", "Starting")
    told = world.wait_for("False", "PodsMissing", seconds=2 * DEBOUNCE_SECONDS + SOON_SECONDS)
    assert "0 of 2 pods" in told
    before, reconciled = settled_writes(kubectl), operator.metric("vlm_operator_reconciles_total")
    world("annotate", "leaderworkerset", "vlm-group", "somebody=else")
    eventually(lambda: operator.metric("vlm_operator_reconciles_total") > reconciled)
    assert settled_writes(kubectl) == before


def test_what_is_edited_by_hand_in_a_group_is_mended(world: World):
    world.apply(**TWO_NODES)
    world.wait_for("False", "Starting")
    edit = [{"op": "replace", "path": "/spec/leaderWorkerTemplate/restartPolicy", "value": "None"}]
    world("patch", "leaderworkerset", "vlm-group", "--type=json", "-p", json.dumps(edit))
    policy = "RecreateGroupOnPodRestart"
    eventually(lambda: group(world)["spec"]["leaderWorkerTemplate"]["restartPolicy"] == policy)


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


def test_two_services_that_want_one_name_are_told_and_the_first_is_left_alone(world: World):
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


def test_a_service_of_a_group_s_name_that_came_with_the_group_is_told(world: World):
    world.apply(**TWO_NODES)
    eventually(lambda: group(world))
    # No controller runs here that would have made the group's own Service by now.
    world.apply("vlm-group", workload={"concurrency": 64})
    eventually(lambda: world.exists("service", "vlm-group"))
    world("annotate", "leaderworkerset", "vlm-group", "somebody=else")
    assert "pods of LeaderWorkerSet/vlm-group cannot find each other" in world.wait_for("False", "NameTaken")
    world.status_of("leaderworkerset", "vlm-group", readyReplicas=1, replicas=1)
    eventually(lambda: world.condition()[1] != "NameTaken")
