"""The interval of a ratio: how often it holds the true value, and when there is none."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev

import pytest

from vlm_bench.statistics import interval
from vlm_bench.statistics.interval import percentile, ratio_interval

# Student's t for 97.5 % and 5 and 7 degrees of freedom, from the tables.
T_5, T_7 = 2.5706, 2.3646


def pairs(draw: random.Random, count: int, ratio: float = 1.0, noise: float = 0.05) -> tuple[list[float], list[float]]:
    """Two series whose true ratio is known; both of a pair share a slow drift."""
    drift = [math.exp(draw.gauss(0, 0.3)) for _ in range(count)]
    first = [ratio * d * math.exp(draw.gauss(0, noise)) for d in drift]
    return first, [d * math.exp(draw.gauss(0, noise)) for d in drift]


@pytest.mark.parametrize("count", [6, 10])
def test_equal_servers_are_called_equal_in_about_95_of_100_measurements(count: int) -> None:
    draw = random.Random(count)
    found = [ratio_interval(*pairs(draw, count)) for _ in range(400)]
    # Of 400 exact intervals 380 do, give or take 4 by chance.
    assert 372 <= sum(each is not None and each.contains_one for each in found) <= 388


def test_the_wider_of_students_interval_and_the_bootstraps_counts_on_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "RESAMPLES", 20_000)
    logs = [0.02, 0.04, 0.03, 0.35, 0.01, 0.06, 0.02, 0.05]  # one slow round
    found = ratio_interval([math.exp(each) for each in logs], [1.0] * 8)
    assert found is not None
    half = T_7 * stdev(logs) / math.sqrt(8)
    assert math.log(found.low) == pytest.approx(fmean(logs) - half, rel=1e-4)
    # Hesterberg's bootstrap of the same values, written out.
    draw = random.Random(1)
    means = sorted(fmean(draw.choices(logs, k=8)) for _ in range(20_000))
    tail = 0.5 * math.erfc(math.sqrt(8 / 7) * T_7 / math.sqrt(2))
    assert math.log(found.high) == pytest.approx(max(means[int(20_000 * (1 - tail))], fmean(logs) + half), abs=0.01)
    assert math.log(found.high) > fmean(logs) + half


def test_the_interval_of_few_symmetric_pairs_is_students() -> None:
    logs = [-0.03, -0.02, -0.01, 0.01, 0.02, 0.03]
    found = ratio_interval([math.exp(each) for each in logs], [1.0] * 6)
    assert found is not None
    assert math.log(found.high) == pytest.approx(T_5 * stdev(logs) / math.sqrt(6), rel=1e-4)
    assert found.low == pytest.approx(1 / found.high)


def test_rounds_that_do_not_differ_at_all_have_an_interval_that_holds_their_ratio() -> None:
    found = ratio_interval([1.1] * 6, [1.0] * 6)
    assert found is not None
    assert found.low <= found.value <= found.high
    assert found.high - found.low < 1e-9


def test_a_tenth_more_is_found_in_six_rounds_of_little_noise_and_the_same_each_time() -> None:
    values = pairs(random.Random(1), 6, ratio=1.1118, noise=0.01)
    found = ratio_interval(*values)
    assert found is not None
    assert 1 < found.low < 1.1118 < found.high
    assert ratio_interval(*values) == found


@pytest.mark.parametrize(("first", "second"), [([1.0] * 5, [1.0] * 5), ([0.0] * 6, [1.0] * 6), ([], [])])
def test_too_few_pairs_have_no_interval(first: list[float], second: list[float]) -> None:
    assert ratio_interval(first, second) is None


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([5.0], 99) == 5.0
    assert percentile([], 50) is None
