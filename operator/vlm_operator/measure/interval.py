"""How sure a ratio is: an interval for few pairs of rounds.

Student's interval of the logarithms and Hesterberg's expanded percentile bootstrap ("What Teachers Should Know About the
Bootstrap", The American Statistician 69:4, 2015, section 3.3), and of both the wider end on each side. No bootstrap of n
values leaves their range, which holds the truth in 1 - 2 / 2^n of symmetric cases at most (93.75 % of five), however far
its tails are taken; Student's has no such bound, but is symmetric where the values are not, and there the bootstrap helps.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Final

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 20_000
SEED: Final = 20_260_826
# Fewer say little of their own spread, and a comparison needs an even number: see schedule.
FEWEST_PAIRS: Final = 6


@dataclass(frozen=True)
class Interval:
    """A ratio with its interval. Both ends are ratios as well."""

    value: float
    low: float
    high: float

    @property
    def holds_one(self) -> bool:
        """Whether "no difference" is among what the interval allows."""
        return self.low <= 1.0 <= self.high


def ratio_interval(
    measured: Sequence[float], against: Sequence[float], *, confidence: float = CONFIDENCE, seed: int = SEED
) -> Interval | None:
    """The geometric mean of ``measured[i] / against[i]`` over pairs of rounds, with its interval.

    Pairs stay whole, so what both of a pair share (a busy node, a warm disk) cancels. None with fewer than
    FEWEST_PAIRS pairs of positive values. The same input gives the same interval. Raises ValueError for lengths that differ.
    """
    logs = [math.log(a / b) for a, b in zip(measured, against, strict=True) if a > 0 and b > 0]
    if len(logs) < FEWEST_PAIRS:
        return None
    mean = fmean(logs)
    student, bootstrap = _student_ends(logs, confidence), _bootstrap_ends(logs, confidence, seed)
    # Of logarithms that are all the same the resamples' mean differs from theirs by rounding.
    low, high = min(student[0], bootstrap[0], mean), max(student[1], bootstrap[1], mean)
    return Interval(math.exp(mean), math.exp(low), math.exp(high))


def _student_ends(logs: Sequence[float], confidence: float) -> tuple[float, float]:
    """Mean less and plus Student's quantile times the standard error."""
    count, mean = len(logs), fmean(logs)
    half = student_quantile(1 - (1 - confidence) / 2, count - 1) * stdev(logs) / math.sqrt(count)
    return mean - half, mean + half


def _bootstrap_ends(logs: Sequence[float], confidence: float, seed: int) -> tuple[float, float]:
    """Quantiles of resampled means, further out than the plain percentile interval takes them."""
    draw = random.Random(seed)
    means = sorted(fmean(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    tail = expanded_tail(len(logs), confidence)
    return _quantile(means, tail), _quantile(means, 1 - tail)


def expanded_tail(count: int, confidence: float) -> float:
    """The share of the bootstrap distribution that lies outside on each side, for ``count`` values.

    The plain interval is too narrow by about sqrt((count - 1) / count) and takes a normal quantile where Student's is due.
    """
    quantile = student_quantile(1 - (1 - confidence) / 2, count - 1)
    return NormalDist().cdf(-math.sqrt(count / (count - 1)) * quantile)


def student_quantile(probability: float, freedom: int) -> float:
    """Student's t for ``probability`` above 0.5 and ``freedom`` degrees of freedom, by bisection."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _student_cdf(t: float, freedom: int) -> float:
    """Abramowitz and Stegun, 26.7.3 and 26.7.4: exact for whole degrees of freedom. ``t`` is not negative."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine**2 * 2 * k / (2 * k + 1)
        within = (2 / math.pi) * (angle + math.sin(angle) * total)
    else:
        term, total = 1.0, 0.0
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cosine**2 * (2 * k - 1) / (2 * k)
        within = math.sin(angle) * total
    return 0.5 + within / 2


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between neighbours, as numpy's default."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value below which ``percent`` of 100 of the values lie; None of no values."""
    return _quantile(sorted(values), percent / 100) if values else None
