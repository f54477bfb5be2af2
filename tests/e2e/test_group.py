"""One engine in two pods, under the real LeaderWorkerSet controller."""

import time
from collections.abc import Callable, Iterator

import pytest
from e2e import services
from e2e.endpoint import ask
from e2e.world import World, eventually

pytestmark = pytest.mark.timeout(600)

NAME = "pair"


@pytest.fixture(scope="module")
def pair(world: World, free_processors: None) -> Iterator[World]:
    """A service of two pods, each with half of the model, alone on the machine."""
    world.pause_others(NAME)
    world.apply(NAME, services.cpu(parallelism={"tensor": 2}, multinode={"nodeCount": 2}))
    yield world
    world("delete", "vlms", NAME, "--timeout=60s")


def members(world: World) -> dict[str, str]:
    """Names and uids of the pods that are not on their way out."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.pods(NAME)}


def test_two_pods_answer_a_question_as_one(pair: World, record_property: Callable[[str, object], None]) -> None:
    begun = time.monotonic()
    pair.wait_until_ready(NAME, 400)
    record_property("start of an engine in two pods", f"{time.monotonic() - begun:.0f} s")
    assert set(members(pair)) == {f"{NAME}-group-0", f"{NAME}-group-0-1"}
    answer = ask(pair, NAME, model=NAME)
    assert (answer.status, answer.chunks >= 2) == (200, True)
    assert answer.finish_reason in ("length", "stop")
    assert pair.service(NAME)["status"]["readyReplicas"] == 1


def test_clients_reach_the_leader_only(pair: World) -> None:
    pair.wait_until_ready(NAME, 400)
    slices = pair.items("endpointslices", "-l", f"kubernetes.io/service-name={NAME}")
    targets = [endpoint["targetRef"]["name"] for each in slices for endpoint in each["endpoints"]]
    assert targets == [f"{NAME}-group-0"]


def test_a_lost_member_starts_the_whole_group_anew(pair: World) -> None:
    pair.wait_until_ready(NAME, 400)
    before = members(pair)
    pair("delete", "pod", f"{NAME}-group-0-1", "--wait=false")

    def replaced() -> bool:
        now = members(pair)
        return now.keys() == before.keys() and not set(now.values()) & set(before.values())

    eventually(replaced, "two other pods", seconds=120)
    assert pair.condition(NAME)[0] == "False"
