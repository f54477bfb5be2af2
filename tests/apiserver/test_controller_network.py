"""The NetworkPolicy of a service on a real API server, which checks and completes it. Nothing here enforces it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.operating import Operator, World, eventually, settled, writes

POLICY = "vlm-vlm"
EXTRA = [{"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}], "ports": [{"port": 9000}]}]


@pytest.fixture(scope="module")
def operator(api_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "log"
    started = Operator(api_server.kubeconfig, log, "--extra-egress", json.dumps(EXTRA)).start()
    yield started
    assert started.stop() == 0, started.said()
    assert "Traceback" not in started.said()


@pytest.fixture
def world(operator: Operator, kubectl: Any, namespace: str) -> World:
    return World(kubectl, namespace)


def cpu(**spec: Any) -> dict[str, Any]:
    return {"hardware": {"device": "cpu"}, **spec}


def policy(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.get("networkpolicy", POLICY)
    return found


def test_it_is_there_with_the_site_s_rules_and_belongs_to_the_service(world: World):
    world.apply(**cpu())
    made = eventually(lambda: policy(world))
    assert made["spec"]["egress"][-1] == {**EXTRA[0], "ports": [{"protocol": "TCP", "port": 9000}]}
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["uid"] == world.get("vlms")["metadata"]["uid"]


def test_once_it_is_there_it_is_not_written_again(world: World, operator: Operator):
    world.apply(**cpu())
    world.wait_for("False", "Starting")
    counted = settled(lambda: writes(world)).get("networkpolicies", 0)
    before = policy(world)["metadata"]["resourceVersion"]
    passes = operator.metric("vlm_operator_reconciles_total")
    # A pod's event makes the operator look again.
    world("run", "vlm-x", "--image=x", "--labels=vlmserve.dev/service=vlm,vlmserve.dev/component=engine")
    eventually(lambda: operator.metric("vlm_operator_reconciles_total") > passes)
    world.wait_for("False", "Starting")
    assert policy(world)["metadata"]["resourceVersion"] == before
    assert settled(lambda: writes(world)).get("networkpolicies", 0) == counted


@pytest.mark.parametrize(
    "edit",
    [
        '[{"op": "add", "path": "/spec/ingress/0/ports/-", "value": {"protocol": "TCP", "port": 22}}]',
        '[{"op": "add", "path": "/spec/egress/0/ports/0/endPort", "value": 9999}]',
        '[{"op": "add", "path": "/spec/egress/-", "value": {}}]',
        '[{"op": "remove", "path": "/spec/egress/1/to/0/ipBlock/except/1"}]',
        '[{"op": "replace", "path": "/spec/podSelector/matchLabels/vlmserve.dev~1service", "value": "other"}]',
        '[{"op": "replace", "path": "/spec/policyTypes", "value": ["Ingress"]}]',
    ],
    ids=["a port", "a range of ports", "a rule for everything", "a hole", "other pods", "one direction"],
)
def test_a_door_that_is_opened_by_hand_is_closed_again(world: World, edit: str):
    world.apply(**cpu())
    before = eventually(lambda: policy(world))["spec"]
    world("patch", "networkpolicy", POLICY, "--type=json", "-p", edit)
    eventually(lambda: policy(world)["spec"] == before)


def test_a_deleted_one_comes_back(world: World):
    world.apply(**cpu())
    uid = eventually(lambda: policy(world))["metadata"]["uid"]
    world("delete", "networkpolicy", POLICY)
    eventually(lambda: policy(world)["metadata"]["uid"] != uid)


def test_switched_off_it_goes_and_no_pod_is_replaced(world: World):
    world.apply(**cpu())
    eventually(lambda: policy(world))
    world.wait_for("False", "Starting")
    before = world.plan_hash()
    world.apply(**cpu(security={"networkPolicy": False}))
    eventually(lambda: not world.exists("networkpolicy", POLICY))
    findings = eventually(
        lambda: [f for f in world.get("vlms")["status"]["plan"]["findings"] if f["reason"] == "MediaUrlsOpen"]
    )
    assert findings[0]["severity"] == "Warning"
    assert world.plan_hash() == before


def test_the_job_that_reads_the_model_s_files_has_its_way_out_before_there_is_a_plan(world: World):
    world.apply(**cpu(model={"uri": "hf://nobody/nothing-is-known-of-it"}))
    world.wait_for("False", "Inspecting")
    made = eventually(lambda: policy(world))
    selector = made["spec"]["podSelector"]["matchLabels"]
    (job,) = json.loads(world("get", "jobs", "-o", "json"))["items"]
    assert selector.items() <= job["spec"]["template"]["metadata"]["labels"].items()


def test_somebody_else_s_policy_of_another_name_stays(world: World):
    theirs = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "vlm"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }
    world("apply", "-f", "-", stdin=theirs)
    world.apply(**cpu())
    eventually(lambda: policy(world))
    assert world.get("networkpolicy", "vlm")["spec"]["podSelector"] == {}
