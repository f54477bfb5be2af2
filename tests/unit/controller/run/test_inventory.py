"""Nodes and GPUs as the operator keeps them."""

import json
from typing import Any

import pytest

from vlm_operator.controller.run.inventory import Inventory
from vlm_operator.facts.nodes.node import node_facts


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
    "free CPU": lambda n: n["status"]["allocatable"].update(cpu="2"),
    "an annotation": lambda n: n["metadata"].update(annotations={"a": "b"}, resourceVersion="9"),
}
CHANGES: dict[str, Any] = {
    "a label": lambda n: n["metadata"]["labels"].update({"nvidia.com/gpu.product": "Tesla-T4"}),
    "a cordon": lambda n: n["spec"].update(unschedulable=True),
    "a taint": lambda n: n["spec"].update(taints=[{"key": "k", "effect": "NoSchedule"}]),
    "readiness": lambda n: n["status"].update(conditions=[ready("False")]),
    "healthy devices": lambda n: n["status"]["allocatable"].update({"nvidia.com/gpu": "7"}),
}


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def inventory(changes: list[str]) -> Inventory:
    return Inventory(lambda: changes.append("changed"))


def names(inventory: Inventory) -> list[str]:
    return [n.name for n in inventory.facts("nvidia.com/gpu")]


@pytest.mark.parametrize(
    ("change", "times"),
    [pytest.param(c, 1, id=n) for n, c in NOISE.items()] + [pytest.param(c, 2, id=n) for n, c in CHANGES.items()],
)
def test_only_changes_that_a_plan_depends_on_wake_its_services(inventory, changes, change, times):
    inventory.nodes.update(node())
    changed = node()
    change(changed)
    for _ in range(2):
        inventory.nodes.update(changed)
    assert len(changes) == times


def test_a_node_that_goes_is_forgotten(inventory, changes):
    for name in ("a", "b", "c"):
        inventory.nodes.update(node(name))
    assert names(inventory) == ["a", "b", "c"]
    inventory.nodes.update(node("b"), deleted=True)
    assert names(inventory) == ["a", "c"]
    inventory.nodes.retain(None, {(None, "c")}, "9")
    assert names(inventory) == ["c"]
    assert len(changes) == 5
    inventory.nodes.retain(None, {(None, "c")}, "9")
    assert len(changes) == 5


def test_labels_that_thousands_of_nodes_have_are_kept_once(inventory):
    for name in ("a", "b"):
        copied = json.loads(json.dumps(node(name, **{"example.com/a-label-of-all": "of-all-nodes"})))
        inventory.nodes.update(copied)
    one, other = (sorted(n["metadata"]["labels"].items()) for n in inventory.nodes.all().values())
    assert one == other
    assert all(a is b for pair in zip(one, other, strict=True) for a, b in zip(*pair, strict=True))


def test_nodes_are_in_the_order_of_their_names_whatever_the_order_of_events(inventory):
    for name in ("b", "c", "a"):
        inventory.nodes.update(node(name))
    assert names(inventory) == ["a", "b", "c"]


def test_the_operator_knows_as_much_of_a_node_as_a_plan_without_a_cluster(inventory):
    large = node()
    large["status"]["allocatable"] |= {"memory": "515Gi", "ephemeral-storage": "1Ti"}
    inventory.nodes.update(large)
    (kept,) = inventory.facts("nvidia.com/gpu")
    assert kept == node_facts(large, [], "nvidia.com/gpu")
    assert kept.memory_mib == 515 * 1024


def test_slices_of_other_drivers_wake_nobody(inventory, changes):
    other = {"metadata": {"name": "s"}, "spec": {"driver": "net.example", "nodeName": "n"}}
    gpus = {"metadata": {"name": "g"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "n", "devices": []}}
    inventory.slices.update(other)
    assert changes == []
    inventory.slices.update(gpus)
    inventory.slices.update(gpus, deleted=True)
    assert len(changes) == 2
