"""Labels of a service's objects, changed by hand, against a real API server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.operating import Operator, World, ended, eventually

LABEL = "vlmserve.dev/service"


@pytest.fixture
def world(api_server: Any, kubectl: Any, namespace: str, tmp_path: Path) -> Iterator[World]:
    operator = Operator(
        api_server.kubeconfig, tmp_path / "log", "--no-leader-election", "--namespace", namespace
    ).start()
    yield World(kubectl, namespace)
    assert operator.stop() == 0, operator.said()
    assert "Traceback" not in operator.said()


KINDS = ("deployment", "service", "configmap", "controllerrevision", "networkpolicy")


@pytest.mark.parametrize("change", [f"{LABEL}=debug", f"{LABEL}-"], ids=["another", "none"])
def test_objects_of_a_service_get_their_label_back(world: World, change: str):
    world.starts()
    before, ours = world.plan_hash(), owned(world)
    assert {o["kind"].lower() for o in ours.values()} == set(KINDS)
    for found in ours.values():
        world("label", found["kind"].lower(), found["metadata"]["name"], "--overwrite", change)

    def back() -> bool:
        live = owned(world)
        return live.keys() == ours.keys() and all(o["metadata"]["labels"].get(LABEL) == "vlm" for o in live.values())

    eventually(back, what=lambda: [(o["kind"], o["metadata"]["labels"]) for o in owned(world).values()])
    assert world.plan_hash() == before


def test_a_pod_whose_label_was_changed_no_longer_counts(world: World):
    world.starts()
    message = json.dumps({"reason": "OutOfDeviceMemory", "message": "24 MiB were missing on GPU 0"})
    world.pod("sick", node="anywhere", phase="Running", containerStatuses=ended(message))
    world.wait_for("False", "OutOfDeviceMemory")
    world("label", "pod", "sick", "--overwrite", f"{LABEL}=debug")
    world.wait_for("False", "Starting")
    world("label", "pod", "sick", "--overwrite", f"{LABEL}=vlm")
    world.wait_for("False", "OutOfDeviceMemory")
    world("label", "pod", "sick", f"{LABEL}-")
    world.wait_for("False", "Starting")


def owned(world: World) -> dict[str, dict[str, Any]]:
    """The service's objects, by uid."""
    uid = world.get("vlms")["metadata"]["uid"]
    items = json.loads(world("get", ",".join(KINDS), "-o", "json"))["items"]
    mine = [o for o in items if any(r["uid"] == uid for r in o["metadata"].get("ownerReferences", []))]
    return {o["metadata"]["uid"]: o for o in mine}
