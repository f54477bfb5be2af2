"""An update under load: the pods are replaced, and no client notices. benchmarks/drain.py does it a hundred times."""

from collections.abc import Callable, Iterator

import pytest
from benchmarks.streams import Load, Streams
from e2e import services
from e2e.endpoint import engine_url
from e2e.world import World, eventually

pytestmark = pytest.mark.timeout(300)

NAME = "drained"


def spec(update: int) -> services.Spec:
    found = services.stand_in(replicas=2)
    found["engine"]["env"].append({"name": "UPDATE", "value": str(update)})
    return found


@pytest.fixture(scope="module")
def drained(world: World, free_processors: None) -> Iterator[World]:
    """Two replicas that serve, alone on the machine."""
    with services.stand_in_serves(world, NAME, spec(0)):
        yield world


def test_an_update_cuts_no_stream_and_refuses_no_request(
    drained: World, record_property: Callable[[str, object], None]
) -> None:
    before = {pod["metadata"]["uid"] for pod in drained.pods(NAME)}
    assert len(before) == 2
    with Streams(Load(engine_url(drained, NAME), NAME, tokens=20, image_side=32), 2) as streams:
        eventually(lambda: len(streams.done) >= 2, "first answers", seconds=30)
        drained.apply(NAME, spec(1))
        eventually(lambda: replaced(drained, before), "two other pods, and the old ones gone", seconds=120, pause=0.5)
        answered = len(streams.done)
        eventually(lambda: len(streams.done) > answered + 2, "answers of the new pods", seconds=30)
    assert set(streams.outcomes()) == {"ok"}, [r.detail for r in streams.done if r.outcome != "ok"]
    record_property("streams through an update of two replicas, none cut", len(streams.done))


def replaced(world: World, before: set[str]) -> bool:
    """Also of those on their way out none is left."""
    left = {pod["metadata"]["uid"] for pod in world.items("pods", "-l", f"vlmserve.dev/service={NAME}")}
    return len(left) == 2 and not left & before


def test_the_network_policy_holds_the_pods_that_run_though_this_cluster_s_bridge_enforces_none(drained: World) -> None:
    policy = drained.get("networkpolicy", f"{NAME}-vlm")["spec"]
    labels = ",".join(f"{key}={value}" for key, value in policy["podSelector"]["matchLabels"].items())
    held = {pod["metadata"]["name"] for pod in drained.items("pods", "-l", labels)}
    assert held >= {pod["metadata"]["name"] for pod in drained.pods(NAME)}
