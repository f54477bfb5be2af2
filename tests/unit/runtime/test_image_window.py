"""From the engine's counters to the report."""

from __future__ import annotations

import pytest

from vlm_api.report import SeenImages
from vlm_runtime.images import ImageWindow, image_counts

EXPOSITION = b"""\
# HELP vlmserve_images_received_total Multiprocess metric
# TYPE vlmserve_images_received_total counter
vlmserve_images_received_total 1.2e+06
sglang:num_requests_total{model_name="vlmserve_images_repeated_total"} 3.0
vlmserve_images_repeated_total 17.0
vlmserve_image_received_bytes_total 5.0
"""


def test_the_two_counters_are_found_among_all_others() -> None:
    assert image_counts(EXPOSITION) == (1_200_000, 17)


@pytest.mark.parametrize("text", [b"", b"<html>404</html>", EXPOSITION.replace(b"17.0", b"NaN"), EXPOSITION[:130]])
def test_an_engine_that_does_not_count_images_says_nothing(text: bytes) -> None:
    assert image_counts(text) is None


def test_the_first_sample_is_where_counting_starts() -> None:
    window = ImageWindow()
    window.add(1000.0, 2, 1)
    assert window.seen() == SeenImages(received=0, repeated=0, window_seconds=0)
    window.add(1060.0, 12, 4)
    assert window.seen() == SeenImages(received=10, repeated=3, window_seconds=60)


def test_features_that_found_no_room_are_counted_over_the_same_time() -> None:
    window = ImageWindow()
    window.add(0.0, 100, 10, 90)
    window.add(600.0, 300, 10, 95)
    assert window.seen() == SeenImages(received=200, repeated=0, fell_back=5, window_seconds=600)


def test_what_is_more_than_an_hour_ago_no_longer_counts() -> None:
    window = ImageWindow(seconds=3600)
    for minute in range(180):
        # ten new images a minute; for the first hour all of them repeated
        window.add(60.0 * minute, 10 * minute, 10 * min(minute, 60))
    assert window.seen() == SeenImages(received=600, repeated=0, window_seconds=3600)


def test_memory_is_bounded_also_where_samples_are_rare() -> None:
    window = ImageWindow(seconds=3600)
    window.add(0.0, 0, 0)
    window.add(10_000.0, 50, 5)
    assert window.seen() == SeenImages(received=50, repeated=5, window_seconds=10_000)
