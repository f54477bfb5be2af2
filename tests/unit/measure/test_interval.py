"""The interval of a ratio: how often it holds the truth, and when it says nothing."""

from __future__ import annotations

import math
import random

import pytest

from vlm_operator.measure import interval
from vlm_operator.measure.interval import percentile, ratio_interval, student_quantile


def pairs(draw: random.Random, count: int, ratio: float = 1.0, noise: float = 0.05) -> tuple[list[float], list[float]]:
    """Two series whose true ratio is known; both of a pair share a slow drift."""
    drift = [math.exp(draw.gauss(0, 0.3)) for _ in range(count)]
    first = [ratio * d * math.exp(draw.gauss(0, noise)) for d in drift]
    return first, [d * math.exp(draw.gauss(0, noise)) for d in drift]


@pytest.mark.parametrize("count", [5, 6, 10])
def test_equal_servers_are_called_equal_in_nine_of_ten_measurements(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interval, "RESAMPLES", 500)
    draw = random.Random(count)
    found = [ratio_interval(*pairs(draw, count)) for _ in range(200)]
    assert sum(each is not None and each.holds_one for each in found) >= 180


@pytest.mark.parametrize("count", [5, 10])
def test_an_interval_of_95_percent_is_not_so_wide_that_it_never_misses(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interval, "RESAMPLES", 500)
    draw = random.Random(100 + count)
    found = [ratio_interval(*pairs(draw, count)) for _ in range(200)]
    assert sum(each is not None and not each.holds_one for each in found) > 0


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


@pytest.mark.parametrize(("first", "second"), [([1.0] * 4, [1.0] * 4), ([0.0] * 6, [1.0] * 6), ([], [])])
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
