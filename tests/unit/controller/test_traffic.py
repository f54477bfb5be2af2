"""Whether images come back as often as declared, said so seldom that it costs no write."""

from __future__ import annotations

import pytest

from vlm_api.report import SeenImages
from vlm_api.status import ImagesInTraffic
from vlm_operator.controller.traffic import images_in_traffic


def seen(percent: float, received: int = 10_000, seconds: int = 3600) -> SeenImages:
    return SeenImages(received=received, repeated=round(received * percent / 100), window_seconds=seconds)


def told(declared: str, *percents: float) -> ImagesInTraffic | None:
    """What is said after the traffic was so, one after the other."""
    said = None
    for percent in percents:
        said = images_in_traffic(declared, [seen(percent)], said)
    return said


def reason(said: ImagesInTraffic | None) -> str | None:
    assert said is not None
    return said.finding.reason if said.finding else None


@pytest.mark.parametrize(
    ("declared", "percent", "expected"),
    [
        ("SingleUse", 0, None),
        ("SingleUse", 19.9, None),
        ("SingleUse", 20, "ImagesRepeat"),
        ("SingleUse", 100, "ImagesRepeat"),
        ("Unknown", 0, None),
        ("Unknown", 20, "ImagesRepeat"),
        ("Repeated", 0, "ImagesDoNotRepeat"),
        ("Repeated", 1, "ImagesDoNotRepeat"),
        ("Repeated", 1.1, None),
        ("Repeated", 90, None),
    ],
)
def test_traffic_is_held_against_what_was_declared(declared: str, percent: float, expected: str | None) -> None:
    assert reason(told(declared, percent)) == expected


@pytest.mark.parametrize(
    "images",
    [[], [seen(50, received=999)], [seen(50, seconds=599)], [seen(50, 600), seen(50, 600, seconds=60)]],
)
def test_few_images_and_short_times_say_nothing(images: list[SeenImages]) -> None:
    assert images_in_traffic("SingleUse", images, None) is None


def test_the_images_of_all_pods_count_together() -> None:
    said = images_in_traffic("SingleUse", [seen(40, 600), seen(0, 600)], None)
    assert said is not None
    assert (said.repeated_percent, reason(said)) == (20, "ImagesRepeat")


def test_a_finding_names_the_share_the_field_and_the_next_step() -> None:
    said = told("SingleUse", 38)
    assert said is not None
    assert said.finding is not None
    assert said.finding.path == "spec.workload.images.reuse"
    assert "about 40 % of images" in said.finding.message
    assert "Set it to Repeated" in said.finding.message


def test_what_was_said_stays_until_the_traffic_is_clearly_otherwise() -> None:
    assert reason(told("SingleUse", 20, 11)) == "ImagesRepeat"
    assert reason(told("SingleUse", 20, 9)) is None
    assert reason(told("SingleUse", 20, 9, 11)) is None
    assert reason(told("Repeated", 0.5, 4.9)) == "ImagesDoNotRepeat"
    assert reason(told("Repeated", 0.5, 5.1)) is None


def test_traffic_that_moves_a_little_changes_nothing() -> None:
    for declared, around in (("SingleUse", (33.0, 41.0, 26.0, 35.0)), ("Repeated", (60.0, 69.0, 52.0, 60.0))):
        first = told(declared, around[0])
        for percent in around:
            assert images_in_traffic(declared, [seen(percent)], first) == first


def test_a_share_that_has_really_moved_is_followed() -> None:
    said = told("SingleUse", 35, 62)
    assert said is not None
    assert said.finding is not None
    assert said.repeated_percent == 60
    assert "about 60 %" in said.finding.message


def test_a_quiet_hour_takes_nothing_back() -> None:
    said = told("SingleUse", 50)
    assert images_in_traffic("SingleUse", [seen(0, received=10)], said) == said


def test_another_declaration_starts_anew() -> None:
    said = told("SingleUse", 50)
    assert images_in_traffic("Repeated", [], said) is None
    assert reason(images_in_traffic("Repeated", [seen(50)], said)) is None
