"""What the runtime reads from the engine's metrics."""

from __future__ import annotations

import pytest

from vlm_api.report import ImageCounts
from vlm_runtime.sglang.engine_metrics import (
    ImageWindow,
    PoolMetrics,
    Progress,
    parse_image_counts,
    parse_pool_metrics,
    parse_progress,
)

EXPOSITION = b"""\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="tiny",pp_rank="0",tp_rank="0"} 2.0
sglang:num_queue_reqs{engine_type="unified",model_name="tiny",pp_rank="0",tp_rank="0"} 1.0
sglang:num_running_reqs_offline_batch{engine_type="unified"} 9.0
sglang:realtime_tokens_total{engine_type="unified",mode="decode",model_name="tiny"} 40.0
sglang:realtime_tokens_total{engine_type="unified",mode="prefill_compute",model_name="tiny"} 64.0
sglang:time_to_first_token_seconds_bucket{le="0.1"} 7.0
sglang:time_to_first_token_seconds_count{model_name="tiny"} 3.0
sglang:num_requests_total{model_name="vlmserve_images_repeated_total"} 3.0
process_cpu_seconds_total 12.0
# TYPE vlmserve_images_received_total counter
vlmserve_images_received_total 1.2e+06
vlmserve_images_repeated_total 17.0
vlmserve_image_received_bytes_total 5.0
vlmserve_feature_pool_size_bytes 3.221192704e+09
vlmserve_feature_pool_fallbacks_total 7.0
"""


def test_each_reader_finds_its_own_series() -> None:
    assert parse_progress(EXPOSITION) == Progress(computed=107, in_flight=3)
    assert parse_image_counts(EXPOSITION) == (1_200_000, 17)
    assert parse_pool_metrics(EXPOSITION) == PoolMetrics(3_221_192_704, 7)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>404</html>",
        b"python_gc_objects_collected_total 3.0\n",
        b"vlmserve_images_received_total 3.0\nvlmserve_images_repeated_total NaN\nvlmserve_feature_pool_size_bytes 0\n",
        b"vlmserve_feature_pool_size_bytes +Inf\n",
        b"vlmserve_feature_pool_fallbacks_total 3\n",
    ],
)
def test_missing_and_strange_values_are_no_values(text: bytes) -> None:
    assert (parse_progress(text), parse_image_counts(text), parse_pool_metrics(text)) == (None, None, None)


def test_the_window_counts_from_its_first_sample() -> None:
    window = ImageWindow()
    window.add(1000.0, 2, 1, 90)
    assert window.counts() == ImageCounts(received=0, repeated=0, window_seconds=0)
    window.add(1060.0, 12, 4, 95)
    assert window.counts() == ImageCounts(received=10, repeated=3, fell_back=5, window_seconds=60)


def test_samples_of_more_than_an_hour_ago_do_not_count() -> None:
    window = ImageWindow(seconds=3600)
    for minute in range(180):
        # ten new images a minute; in the first hour, all of them repeated
        window.add(60.0 * minute, 10 * minute, 10 * min(minute, 60))
    assert window.counts() == ImageCounts(received=600, repeated=0, window_seconds=3600)


def test_two_samples_are_kept_even_if_they_are_rare() -> None:
    window = ImageWindow(seconds=3600)
    window.add(0.0, 0, 0)
    window.add(10_000.0, 50, 5)
    assert window.counts() == ImageCounts(received=50, repeated=5, window_seconds=10_000)
