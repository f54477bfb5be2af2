"""What rounds come to: rates, failures, who is named faster, and the knee of a curve."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from unit.measure.rounds import LOAD, answers, result, round_at

from vlm_operator.cli.bench_status import summary
from vlm_operator.measure.driver import MARK
from vlm_operator.measure.rounds import Round, read_line, round_of, summarize


def test_the_warm_up_is_no_part_of_the_result() -> None:
    [summary] = summarize([round_at(0, 0, 100.0), round_at(1, 0, 4.0), round_at(2, 0, 5.0)])
    assert (summary.rounds, summary.requests) == (2, 80)
    assert summary.requests_per_second == pytest.approx((10 + 8) / 2)
    assert summary.tokens_per_second == pytest.approx((10 + 8) / 2 * 11)
    assert (summary.slowest_round, summary.fastest_round) == (8, 10)


def test_percentiles_are_over_all_requests_of_all_rounds() -> None:
    slow = replace(round_at(1, 0, 4.0, count=10), answers=answers(10, ttft_ms=900))
    [summary] = summarize([slow, replace(round_at(2, 0, 4.0, count=90), answers=answers(90, ttft_ms=100))])
    assert summary.ttft_ms[50] == 100
    assert summary.ttft_ms[95] == 900


def test_requests_that_failed_are_counted_and_make_no_throughput() -> None:
    [summary] = summarize([round_at(1, 0, 4.0, failed=10)])
    assert summary.failures == 10
    assert summary.errors == {"connection refused": 10}
    assert summary.requests_per_second == pytest.approx(30 / 4)


def test_a_round_in_which_nothing_was_answered_has_no_rate() -> None:
    [summary] = summarize([Round(1, 1, 0, 8, 40, 0.0, errors={"gone": 40})])
    assert summary.requests_per_second == 0
    assert summary.ttft_ms[50] is None


def test_a_line_of_the_pods_log_becomes_a_round() -> None:
    event = {
        "event": "round", "line": 3, "number": 1, "round": 1, "target": 0, "concurrency": 8, "requests": 2, "seconds": 1.5,
        "seed": 9, "answers": [[12.5, 3.25, 45.0, 11]], "errors": {"gone": 1}, "counters": {}, "settings": {"a": 1},
    }  # fmt: skip
    found = round_of(read_line(MARK + json.dumps(event)) or {})
    assert found.answers[0].ttft_ms == 12.5
    assert found.failures == 1
    assert found.settings == {"a": 1}


@pytest.mark.parametrize("line", ["", "Starting warmup...", f"{MARK}not json", '{"event": "round"}'])
def test_what_others_write_into_the_log_is_passed_over(line: str) -> None:
    assert read_line(line) is None


def test_the_faster_one_is_named_with_the_ratio_and_its_interval() -> None:
    rounds = [round_at(n, t, 4.0 * (1.2 if t else 1.0) + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
    [comparison] = result(rounds, "ours", "theirs").comparisons
    assert comparison.winner == "ours"
    assert comparison.pairs == 6
    assert comparison.sentence().startswith(
        "ours answers 19.8% more requests/s than theirs (ours to theirs: 1.198, 95%"
    )


def test_one_that_is_several_times_as_fast_is_called_so() -> None:
    rounds = [round_at(n, t, 4.0 * (5 if t else 1) + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
    [comparison] = result(rounds, "ours", "theirs").comparisons
    assert comparison.sentence().startswith("ours answers 5.0 times the requests/s of theirs (ours to theirs: 4.9")


def test_the_slower_one_first_gives_the_same_verdict() -> None:
    rounds = [round_at(n, t, 4.0 * (1.0 if t else 1.2) + 0.01 * n) for n in range(1, 7) for t in (0, 1)]
    [comparison] = result(rounds, "theirs", "ours").comparisons
    assert comparison.winner == "ours"
    assert comparison.sentence().startswith("ours answers 19.8% more requests/s than theirs (theirs to ours: 0.835")


def test_no_winner_is_named_where_the_interval_holds_one() -> None:
    noise = [0.1, -0.2, 0.15, -0.05, 0.12, -0.1]
    rounds = [round_at(n, t, 4.0 + (noise[n - 1] if t else 0)) for n in range(1, 7) for t in (0, 1)]
    [comparison] = result(rounds, "ours", "theirs").comparisons
    assert comparison.winner is None
    assert "no difference is shown" in comparison.sentence()
    assert "which holds 1" in comparison.sentence()


def test_no_winner_is_named_where_requests_failed() -> None:
    rounds = [round_at(n, t, 4.0 * (1 + t), failed=t) for n in range(1, 7) for t in (0, 1)]
    [comparison] = result(rounds, "ours", "theirs").comparisons
    assert comparison.winner is None
    assert "6 requests failed" in comparison.sentence()


def test_rounds_in_which_every_request_failed_are_not_called_too_few() -> None:
    rounds = [replace(round_at(n, t, 4.0, failed=40), answers=()) for n in range(1, 7) for t in (0, 1)]
    [comparison] = result(rounds, "ours", "theirs").comparisons
    assert comparison.sentence() == "no winner: 480 requests failed, in some rounds all of them"


def test_only_rounds_that_both_have_are_compared() -> None:
    rounds = [round_at(n, 0, 4.0) for n in range(1, 8)] + [round_at(n, 1, 4.0) for n in range(1, 3)]
    [comparison] = result(rounds, "ours", "theirs").comparisons
    assert comparison.pairs == 2
    assert "2 pairs of rounds are too few" in comparison.sentence()


NOW = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)
CURVE = replace(LOAD, concurrency=(1, 8, 64, 400))


def curve(*points: tuple[int, float, float], failed: int = 0) -> list[Round]:
    """Concurrency, seconds of a round, milliseconds of an answer."""
    return [
        replace(round_at(1, 0, seconds, concurrency=level, failed=failed), answers=answers(40 - failed, ttft_ms=wait))
        for level, seconds, wait in points
    ]


def test_the_knee_is_where_throughput_over_latency_is_greatest() -> None:
    found = result(curve((1, 40, 900), (8, 8, 1500), (64, 2, 2400), (400, 1.9, 14_000)), load=CURVE)
    [knee] = found.knees
    assert knee is not None
    assert knee.concurrency == 64
    assert "20.00 requests/s" in knee.sentence


def test_a_knee_at_the_end_says_that_it_may_lie_beyond() -> None:
    [knee] = result(curve((1, 40, 900), (8, 8, 1000), (64, 1, 1100)), load=CURVE).knees
    assert knee is not None
    assert "may lie beyond" in knee.sentence


def test_no_knee_is_named_of_rounds_that_differ_widely() -> None:
    points = (1, 40, 900), (8, 8, 1500), (64, 2, 2400)
    again = [replace(each, round=2, seconds=each.seconds * 3) for each in curve(*points)]
    found = result([*curve(*points), *again], load=CURVE)
    assert found.knees == [None]
    assert "qwen3-vl at 64 at once 6.67 to 20.00 requests/s" in " ".join(found.remarks)


@pytest.mark.parametrize("failed", [0, 1])
def test_no_knee_is_named_from_two_points_or_where_requests_failed(failed: int) -> None:
    points = ((1, 40.0, 900.0), (8, 8.0, 1000.0), (64, 1.0, 1100.0))
    assert result(curve(*points[: 2 + failed], failed=failed), load=CURVE).knees == [None]


def test_the_error_tells_how_many_failed_of_how_many_and_why() -> None:
    said = result([round_at(1, 0, 4.0, failed=30)], complete=False).failure()
    assert said == "30 of 40 requests to qwen3-vl failed, so the measurement ended there: connection refused"
    assert result([round_at(1, 0, 4.0)]).failure() is None


def test_a_setting_that_the_engine_tells_otherwise_is_shown() -> None:
    told = replace(round_at(1, 0, 4.0), settings={"max_running_requests": 4})
    assert result([told]).differs() == {"max_running_requests": (8, 4)}
    assert result([replace(told, settings={"max_running_requests": "8"})]).differs() == {}


def test_the_status_keeps_the_best_point_of_a_curve() -> None:
    found = summary("ab12", result(curve((1, 40, 900), (8, 8, 1500), (64, 2, 2400)), load=CURVE), NOW)
    assert found is not None
    assert (found.concurrency, found.requests_per_second, found.failures) == (64, 20.0, 0)
    assert (found.plan_hash, found.time) == ("ab12", "2026-11-29T12:00:00Z")
    assert summary("ab12", result([]), NOW) is None


def test_a_concurrency_at_which_requests_failed_is_not_kept_as_the_best() -> None:
    """The 20 of 40 that were answered had the server for themselves."""
    rounds = [round_at(n, 0, 4.0, concurrency=8) for n in range(1, 7)]
    rounds += [round_at(n, 0, 1.0, concurrency=64, failed=20) for n in range(1, 7)]
    found = summary("ab12", result(rounds, load=CURVE), NOW)
    assert found is not None
    assert (found.concurrency, found.failures, found.requests_per_second) == (8, 0, 10)
