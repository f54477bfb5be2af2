"""Groups of two pods through scaling and an update, under the real LeaderWorkerSet controller.

Only the engine is a stand-in, which starts in a second; test_group.py has the real one in a group.
"""

from collections.abc import Callable, Iterator

import pytest
from benchmarks.streams import Load, Streams
from e2e import services
from e2e.endpoint import engine_url
from e2e.world import World, eventually

pytestmark = pytest.mark.timeout(300)

NAME = "crew"
LEADERS = {f"{NAME}-group-0", f"{NAME}-group-1"}
EVERYBODY = LEADERS | {f"{leader}-1" for leader in LEADERS}


def spec(update: int, replicas: int) -> services.Spec:
    found = services.stand_in(replicas=replicas, parallelism={"tensor": 2}, multinode={"nodeCount": 2})
    found["engine"]["env"].append({"name": "UPDATE", "value": str(update)})
    return found


@pytest.fixture(scope="module")
def crew(world: World, free_processors: None) -> Iterator[World]:
    """One group that serves."""
    with services.stand_in_serves(world, NAME, spec(0, 1)):
        yield world


@pytest.fixture(scope="module")
def two(crew: World) -> World:
    """Two groups that serve."""
    crew("scale", "vlms", NAME, "--replicas=2")
    eventually(lambda: crew.service(NAME)["status"].get("readyReplicas") == 2, "two groups serve", seconds=120)
    return crew


def pods(world: World) -> dict[str, str]:
    """Names and uids of all pods, those on their way out as well."""
    found = world.items("pods", "-l", f"vlmserve.dev/service={NAME}")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}


def test_a_second_replica_is_a_second_group_and_clients_reach_both_leaders(two: World) -> None:
    assert pods(two).keys() == EVERYBODY
    slices = two.items("endpointslices", "-l", f"kubernetes.io/service-name={NAME}")
    assert {e["targetRef"]["name"] for each in slices for e in each["endpoints"]} == LEADERS
    status = two.service(NAME)["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (2, 2, 2)


def test_an_update_replaces_both_groups_and_cuts_no_stream(
    two: World, record_property: Callable[[str, object], None]
) -> None:
    before = pods(two)
    with Streams(Load(engine_url(two, NAME), NAME, tokens=20, image_side=32), 2) as streams:
        eventually(lambda: len(streams.done) >= 2, "first answers", seconds=30)
        two.apply(NAME, spec(1, 2))

        def replaced() -> bool:
            now = pods(two)
            return now.keys() == EVERYBODY and not set(now.values()) & set(before.values())

        eventually(replaced, "four other pods, and the old ones gone", seconds=180, pause=0.5)
        two.wait_for(NAME, "False", "Complete", kind="Progressing", seconds=60)
        answered = len(streams.done)
        eventually(lambda: len(streams.done) > answered + 2, "answers of the new groups", seconds=30)
    assert set(streams.outcomes()) == {"ok"}, [r.detail for r in streams.done if r.outcome != "ok"]
    record_property("streams through an update of two groups, none cut", len(streams.done))


def test_a_replica_less_is_a_group_less(two: World) -> None:
    two("scale", "vlms", NAME, "--replicas=1")
    eventually(lambda: pods(two).keys() == {f"{NAME}-group-0", f"{NAME}-group-0-1"}, "one group is left", seconds=90)
    assert two.condition(NAME)[:2] == ("True", "Serving")
