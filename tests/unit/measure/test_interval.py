"""The interval of a ratio: how often it holds the truth, and when it says nothing."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from vlm_operator.measure import interval
from vlm_operator.measure.interval import expanded_tail, percentile, ratio_interval, student_quantile


def pairs(draw: random.Random, count: int, ratio: float = 1.0, noise: float = 0.05) -> tuple[list[float], list[float]]:
    """Two series whose true ratio is known; both of a pair share a slow drift."""
    drift = [math.exp(draw.gauss(0, 0.3)) for _ in range(count)]
    first = [ratio * d * math.exp(draw.gauss(0, noise)) for d in drift]
    return first, [d * math.exp(draw.gauss(0, noise)) for d in drift]


@pytest.mark.parametrize("count", [6, 8, 10])
def test_equal_servers_are_called_equal_in_about_95_of_100_measurements(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interval, "RESAMPLES", 300)
    draw = random.Random(count)
    found = [ratio_interval(*pairs(draw, count)) for _ in range(400)]
    # Of 400 intervals that are exact 380 do, give or take 4 by chance.
    assert 372 <= sum(each is not None and each.holds_one for each in found) <= 388


def test_the_interval_reaches_beyond_the_range_of_its_pairs_where_those_are_few() -> None:
    found = ratio_interval([1.02, 1.04, 1.03, 1.05, 1.01, 1.06], [1.0] * 6, confidence=0.9999)
    assert found is not None
    assert found.low < 1.01
    assert found.high > 1.06


def test_neither_students_interval_nor_the_bootstraps_reaches_further() -> None:
    logs = [0.02, 0.04, 0.03, 0.35, 0.01, 0.06, 0.02, 0.05]  # one slow round
    found = ratio_interval([math.exp(each) for each in logs], [1.0] * 8)
    assert found is not None
    half = student_quantile(0.975, 7) * stdev(logs) / math.sqrt(8)
    assert math.log(found.low) <= fmean(logs) - half
    assert math.log(found.high) >= fmean(logs) + half
    draw = random.Random(interval.SEED)
    means = sorted(fmean(draw.choices(logs, k=8)) for _ in range(20_000))
    assert math.log(found.high) >= means[int(20_000 * (1 - expanded_tail(8, 0.95)))] - 1e-9


def test_rounds_that_do_not_differ_at_all_have_an_interval_that_holds_their_ratio() -> None:
    found = ratio_interval([1.1] * 6, [1.0] * 6)
    assert found is not None
    assert found.low <= found.value <= found.high
    assert found.high - found.low < 1e-9


def test_a_tenth_more_is_found_in_six_rounds_of_little_noise() -> None:
    found = ratio_interval(*pairs(random.Random(1), 6, ratio=1.1118, noise=0.01))
    assert found is not None
    assert 1 < found.low < 1.1118 < found.high


def test_the_same_rounds_give_the_same_interval() -> None:
    values = pairs(random.Random(2), 6)
    assert ratio_interval(*values) == ratio_interval(*values)


def test_the_ratio_the_other_way_round_is_its_inverse() -> None:
    first, second = pairs(random.Random(3), 8, ratio=1.3)
    one, other = ratio_interval(first, second), ratio_interval(second, first)
    assert one is not None
    assert other is not None
    assert one.value == pytest.approx(1 / other.value)
    assert one.low == pytest.approx(1 / other.high, rel=0.02)


@pytest.mark.parametrize(("first", "second"), [([1.0] * 5, [1.0] * 5), ([0.0] * 6, [1.0] * 6), ([], [])])
def test_too_few_pairs_have_no_interval(first: list[float], second: list[float]) -> None:
    assert ratio_interval(first, second) is None


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(expected, abs=1e-4)


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([5.0], 99) == 5.0
    assert percentile([], 50) is None
