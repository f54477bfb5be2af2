"""What is known of a pod whose runtime does not answer, or has nothing to tell yet. When it is asked: test_watching.py."""

from __future__ import annotations

from unit.controller.test_conclude import pod, report

from vlm_api.report import Report
from vlm_operator.controller.pods import PodView
from vlm_operator.controller.queue import Key
from vlm_operator.controller.reports import SERVING_SECONDS, SOON_AGAIN, STARTING_SECONDS, Reports

KEY = Key("default", "vlm")
ASKED = report(ready=True, asked=True)


class World:
    """Pods that answer what the test wants, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.answer: Report | None = ASKED
        self.questions = 0
        self.reports = Reports(self._ask, lambda: self.now)

    def _ask(self, address: str) -> Report | None:
        self.questions += 1
        return self.answer

    def look(self, *pods: PodView, after: float = 0.0) -> Report | None:
        """What is known of the first pod."""
        self.now += after
        return self.reports.of(KEY, pods).get(pods[0].name)


READY = pod(ready=True)


def test_an_answer_that_got_lost_is_no_news() -> None:
    world = World()
    assert world.look(READY) == ASKED
    world.answer = None
    assert world.look(READY, after=SERVING_SECONDS * 1.2) == ASKED
    assert world.reports.unsettled(KEY)
    world.answer = ASKED
    world.look(READY, after=STARTING_SECONDS)
    assert not world.reports.unsettled(KEY)


def test_what_a_container_said_dies_with_it() -> None:
    world = World()
    world.look(READY)
    world.answer = None
    assert world.look(pod(restarts=1)) is None


def test_a_pod_that_serves_and_tells_no_settings_is_asked_soon_again_but_not_for_ever() -> None:
    for silent in (None, report(ready=True)):
        world = World()
        world.answer = silent
        world.look(READY)
        assert world.reports.unsettled(KEY)
        for _ in range(20):
            world.look(READY, after=STARTING_SECONDS)
        assert world.questions == SOON_AGAIN
        assert not world.reports.unsettled(KEY)


def test_a_follower_of_a_group_has_no_settings_to_tell() -> None:
    world = World()
    world.answer = report(ready=True)
    world.look(pod(ready=True, leader=False))
    assert not world.reports.unsettled(KEY)
