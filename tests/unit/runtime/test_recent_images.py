"""Recent images are remembered in bounded memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from vlm_runtime.sglang.inside.image_metrics import RecentImages


class Clock:
    """Time that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=8), max_size=200))
def test_repeated_content_is_recognized(contents: list[bytes]) -> None:
    recent = RecentImages()
    expected = [content in contents[:place] for place, content in enumerate(contents)]
    assert [recent.add(content) for content in contents] == expected


def test_new_images_hardly_ever_count_as_repeated() -> None:
    recent = RecentImages(capacity=50_000)
    wrong = sum(recent.add(f"image {number}") for number in range(100_000))
    assert wrong < 20


def test_an_image_is_remembered_for_one_to_two_hours() -> None:
    clock = Clock()
    recent = RecentImages(seconds=3600, clock=clock)
    recent.add("early")
    clock.now = 3500
    recent.add("late")
    clock.now = 6800
    assert recent.add("late") is True
    clock.now = 7300
    assert recent.add("early") is False


def test_after_a_long_pause_nothing_is_remembered() -> None:
    clock = Clock()
    recent = RecentImages(seconds=3600, clock=clock)
    recent.add("before the night")
    clock.now = 8 * 3600
    assert recent.add("before the night") is False


def test_beyond_the_capacity_the_last_images_are_remembered() -> None:
    recent = RecentImages(capacity=100)
    for number in range(1000):
        recent.add(number)
    assert all(recent.add(number) for number in range(950, 1000))
    assert not any(recent.add(number) for number in range(700))


def test_a_repeated_image_takes_no_more_space() -> None:
    recent = RecentImages(capacity=2)
    recent.add("a")
    for _ in range(10):
        recent.add("b")
    assert recent.add("a") is True
