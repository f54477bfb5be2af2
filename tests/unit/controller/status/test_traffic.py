"""Whether images come back as often as declared, result so seldom that it costs no write."""

import pytest

from vlm_api.report import ImageCounts
from vlm_api.status import ImagesInTraffic
from vlm_operator.controller.status.traffic import images_in_traffic


def images(percent: float, received: int = 10_000, seconds: int = 3600) -> ImageCounts:
    return ImageCounts(received=received, repeated=round(received * percent / 100), window_seconds=seconds)


def conclusion(declared: str, *percents: float) -> ImagesInTraffic | None:
    """What is result after the traffic was so, one after the other."""
    result = None
    for percent in percents:
        result = images_in_traffic(declared, [images(percent)], result)
    return result


def reason(result: ImagesInTraffic | None) -> str | None:
    return result.finding.reason if result.finding else None


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
    assert reason(conclusion(declared, percent)) == expected


@pytest.mark.parametrize(
    "images",
    [[], [images(50, received=999)], [images(50, seconds=599)], [images(50, 600), images(50, 600, seconds=60)]],
)
def test_few_images_and_short_times_say_nothing(images: list[ImageCounts]) -> None:
    assert images_in_traffic("SingleUse", images, None) is None


def test_the_images_of_all_pods_count_together() -> None:
    result = images_in_traffic("SingleUse", [images(40, 600), images(0, 600)], None)
    assert (result.repeated_percent, reason(result)) == (20, "ImagesRepeat")


def test_a_finding_names_the_share_the_field_and_the_next_step() -> None:
    result = conclusion("SingleUse", 38)
    assert result.finding.path == "spec.workload.images.reuse"
    assert "about 40 % of images" in result.finding.message
    assert "set it to Repeated" in result.finding.message


def test_a_finding_stays_until_the_traffic_clearly_differs() -> None:
    assert reason(conclusion("SingleUse", 20, 11)) == "ImagesRepeat"
    assert reason(conclusion("SingleUse", 20, 9)) is None
    assert reason(conclusion("SingleUse", 20, 9, 11)) is None
    assert reason(conclusion("Repeated", 0.5, 4.9)) == "ImagesDoNotRepeat"
    assert reason(conclusion("Repeated", 0.5, 5.1)) is None


def test_traffic_that_moves_a_little_changes_nothing() -> None:
    for declared, around in (("SingleUse", (33.0, 41.0, 26.0, 35.0)), ("Repeated", (60.0, 69.0, 52.0, 60.0))):
        first = conclusion(declared, around[0])
        for percent in around:
            assert images_in_traffic(declared, [images(percent)], first) == first


def test_a_share_that_has_really_moved_is_followed() -> None:
    result = conclusion("SingleUse", 35, 62)
    assert result.repeated_percent == 60
    assert "about 60 %" in result.finding.message


def test_a_quiet_hour_takes_nothing_back() -> None:
    result = conclusion("SingleUse", 50)
    assert images_in_traffic("SingleUse", [images(0, received=10)], result) == result


def test_another_declaration_starts_over() -> None:
    result = conclusion("SingleUse", 50)
    assert images_in_traffic("Repeated", [], result) is None
    assert reason(images_in_traffic("Repeated", [images(50)], result)) is None
