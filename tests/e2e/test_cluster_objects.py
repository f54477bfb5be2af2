"""What the operator makes of a service, on simulated GPU nodes: real scheduler and controllers, no engine."""

import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from e2e import services
from e2e.world import Json, World, eventually

from minicluster import kube, kwok

NODE = "l40s"
EVERYTHING = "deployments,replicasets,pods,services,configmaps,endpointslices,leaderworkersets"


class Nodes(Protocol):
    """``nodes(2)``: from now on the simulated nodes l40s-0 and l40s-1, with 4 GPUs each, are there."""

    def __call__(self, count: int, preset: str = NODE) -> None: ...


@pytest.fixture
def nodes(world: World) -> Iterator[Nodes]:
    made: dict[str, int] = {}

    def there_are(count: int, preset: str = NODE) -> None:
        kwok.create_nodes(preset, count)
        made[preset] = max(count, made.get(preset, 0))

    yield there_are
    world("delete", "vlms", "--all", "--timeout=60s")
    # Before the nodes go: a pod that outlives its node would count against the next test's node of the same name.
    eventually(lambda: not world.items("pods"), "no pod is left", seconds=60)
    for preset, count in made.items():
        for index in range(count):
            kube.kubectl("delete", "node", f"{preset}-{index}", "--ignore-not-found", "--timeout=30s")


def test_pods_are_made_within_two_seconds(
    world: World, nodes: Nodes, record_property: Callable[[str, object], None]
) -> None:
    nodes(1)
    begun = time.monotonic()
    world.apply("quick", services.l40s())
    eventually(lambda: world.pods("quick"), "a pod", pause=0.02)
    seconds = time.monotonic() - begun
    record_property("from kubectl apply to the pod", f"{seconds:.2f} s")
    assert seconds < 2
    world.wait_until_ready("quick", 15)
    assert world.pod("quick")["spec"]["nodeName"] == "l40s-0"


def test_the_schedulers_own_words_are_shown_and_a_node_that_comes_later_is_used(world: World, nodes: Nodes) -> None:
    nodes(1)
    world.apply("takes-all", services.l40s(tensor=4))
    world.wait_until_ready("takes-all", 15)
    world.apply("waits", services.l40s())
    assert "Insufficient nvidia.com/gpu" in world.wait_for("waits", "False", "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in world.wait_for("waits", "False", "Unschedulable", kind="Progressing")
    nodes(2)
    world.wait_until_ready("waits", 30)
    assert world.pod("waits")["spec"]["nodeName"] == "l40s-1"
    assert world.service("waits")["metadata"]["generation"] == 1


def test_pods_wait_for_the_wished_gpus_and_use_no_others(world: World, nodes: Nodes) -> None:
    nodes(1, "a100")
    nodes(1)
    kube.kubectl("cordon", "l40s-0")
    world.apply("waits", services.l40s())
    assert "were unschedulable" in world.wait_for("waits", "False", "Unschedulable")
    passed_over = world.service("waits")["status"]["plan"]["hardware"]["passedOver"]
    assert {"node": "l40s-0", "reason": "is cordoned"} in passed_over
    nodes(2)
    world.wait_until_ready("waits", 30)
    assert world.pod("waits")["spec"]["nodeName"] == "l40s-1"
    assert world.service("waits")["metadata"]["generation"] == 1


def test_a_deleted_deployment_comes_back(world: World, nodes: Nodes) -> None:
    nodes(1)
    world.apply("stays", services.l40s())
    world.wait_until_ready("stays", 15)
    before = world.get("deployment", "stays")["metadata"]
    world("delete", "deployment", "stays", "--wait=false")
    again = eventually(lambda: another_deployment(world, before["uid"]), "another Deployment")
    assert again["labels"]["vlmserve.dev/plan"] == before["labels"]["vlmserve.dev/plan"]
    world.wait_until_ready("stays", 15)


def another_deployment(world: World, uid: str) -> Json | None:
    metadata: Json | None = world.get("deployment", "stays").get("metadata")
    return metadata if metadata and metadata["uid"] != uid else None


def test_nothing_is_left_of_a_deleted_service(
    world: World, nodes: Nodes, record_property: Callable[[str, object], None]
) -> None:
    nodes(1)
    world.apply("goes", services.l40s())
    world.wait_until_ready("goes", 15)
    selected = ("-l", "vlmserve.dev/service=goes")
    kinds = {each["kind"] for each in world.items(EVERYTHING, *selected)}
    assert kinds >= {"Deployment", "ReplicaSet", "Pod", "Service", "ConfigMap"}
    begun = time.monotonic()
    world("delete", "vlms", "goes", "--wait=false")
    eventually(
        lambda: not world.items(EVERYTHING, *selected) and not world.service("goes"), "everything is gone", seconds=30
    )
    record_property("from deleting a service to nothing left", f"{time.monotonic() - begun:.1f} s")
