"""The NetworkPolicy of a service on a real API server, which checks and completes it. Nothing here enforces it."""

import json
from typing import Any

import pytest
from apiserver.operating import World, eventually

POLICY = "vlm-vlm"
EXTRA = [{"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}], "ports": [{"port": 9000}]}]
OPTIONS = ("--extra-egress", json.dumps(EXTRA))
pytestmark = pytest.mark.usefixtures("operator")


def cpu(**spec: Any) -> dict[str, Any]:
    return {"hardware": {"device": "cpu"}, **spec}


def policy(world: World) -> dict[str, Any]:
    return world.get("networkpolicy", POLICY)


def test_it_is_there_with_the_site_s_rules_and_belongs_to_the_service(world: World):
    world.apply(**cpu())
    made = eventually(lambda: policy(world))
    assert made["spec"]["egress"][-1] == {**EXTRA[0], "ports": [{"protocol": "TCP", "port": 9000}]}
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["uid"] == world.get("vlms")["metadata"]["uid"]


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
def test_a_rule_that_is_added_by_hand_is_removed(world: World, edit: str):
    world.apply(**cpu())
    before = eventually(lambda: policy(world))["spec"]
    world("patch", "networkpolicy", POLICY, "--type=json", "-p", edit)
    eventually(lambda: policy(world)["spec"] == before)


@pytest.mark.parametrize(
    ("kind", "name", "edit", "field"),
    [
        ("service", "vlm", {"spec": {"selector": {"app": "other"}}}, "selector"),
        ("networkpolicy", POLICY, {"spec": {"podSelector": {"matchLabels": {"app": "other"}}}}, "podSelector"),
        (
            "networkpolicy",
            POLICY,
            {"spec": {"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}},
            "podSelector",
        ),
    ],
    ids=["a service's", "a policy's", "a policy's, as an expression"],
)
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_a_key_that_is_added_to_a_selector_is_removed(
    world: World, kind: str, name: str, edit: dict[str, Any], field: str, times: int
):
    """With it the Service has no endpoints, and the policy selects no pod and so closes nothing."""
    world.apply(**cpu())
    world.wait_for("False", "Starting")
    before = eventually(lambda: world.get(kind, name))["spec"][field]
    for _ in range(times):
        world("patch", kind, name, "--type=merge", "-p", json.dumps(edit))
        eventually(lambda: world.get(kind, name)["spec"][field] == before)


def test_switched_off_it_is_deleted_and_no_pod_is_replaced(world: World):
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


def test_the_inspection_job_has_its_egress_before_there_is_a_plan(world: World):
    world.apply(**cpu(model={"uri": "hf://nobody/nothing-is-known-of-it"}))
    world.wait_for("False", "Inspecting")
    made = eventually(lambda: policy(world))
    selector = made["spec"]["podSelector"]["matchLabels"]
    (job,) = json.loads(world("get", "jobs", "-o", "json"))["items"]
    assert selector.items() <= job["spec"]["template"]["metadata"]["labels"].items()
