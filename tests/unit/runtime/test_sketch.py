"""The memory of which images came lately: bounded, and right about those that it should know."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vlm_runtime.sglang.sketch import RecentImages


class Clock:
    """Time that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.binary(max_size=8), max_size=200))
def test_what_came_before_is_known(contents: list[bytes]) -> None:
    recent = RecentImages()
    expected = [content in contents[:place] for place, content in enumerate(contents)]
    assert [recent.saw_before(content) for content in contents] == expected


def test_a_hundred_thousand_different_images_are_hardly_ever_taken_for_known_ones() -> None:
    recent = RecentImages(capacity=50_000)
    wrong = sum(recent.saw_before(f"image {number}") for number in range(100_000))
    assert wrong < 20


def test_an_image_is_known_for_at_least_an_hour_and_at_most_two_after_it_came() -> None:
    clock = Clock()
    recent = RecentImages(seconds=3600, clock=clock)
    recent.saw_before("early")
    clock.now = 3500
    recent.saw_before("late")
    clock.now = 6800
    assert recent.saw_before("late") is True
    clock.now = 7300
    assert recent.saw_before("early") is False


def test_after_a_long_pause_nothing_is_known() -> None:
    clock = Clock()
    recent = RecentImages(seconds=3600, clock=clock)
    recent.saw_before("before the night")
    clock.now = 8 * 3600
    assert recent.saw_before("before the night") is False


def test_when_there_are_more_images_than_room_the_last_ones_are_known() -> None:
    recent = RecentImages(capacity=100)
    for number in range(1000):
        recent.saw_before(number)
    assert all(recent.saw_before(number) for number in range(950, 1000))
    assert not any(recent.saw_before(number) for number in range(700))


def test_the_same_image_again_takes_no_more_room() -> None:
    recent = RecentImages(capacity=2)
    recent.saw_before("a")
    for _ in range(10):
        recent.saw_before("b")
    assert recent.saw_before("a") is True
