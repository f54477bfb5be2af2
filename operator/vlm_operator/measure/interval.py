"""How sure a ratio is: a bootstrap interval for few pairs of rounds.

The interval is Hesterberg's expanded percentile bootstrap ("What Teachers Should Know About the Bootstrap", The American
Statistician 69:4, 2015, section 3.3): the plain percentile interval of n values is too narrow by about
sqrt((n - 1) / n) and takes a normal quantile where Student's is due; with five pairs it holds the truth in some 84 of
100 cases instead of 95. Its tails are therefore taken at Phi(-sqrt(n / (n - 1)) t).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Final

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 20_000
SEED: Final = 20_260_826
# Four pairs have 35 different resamples, too few for tails of 2.5 %: their interval holds the truth in 88 of 100 cases.
FEWEST_PAIRS: Final = 5


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
    """The geometric mean of ``measured[i] / against[i]`` over pairs of rounds, with its bootstrap interval.

    Pairs are drawn whole, so what both of a pair share (a busy node, a warm disk) cancels. None with fewer than
    FEWEST_PAIRS pairs of positive values. The same input gives the same interval. Raises ValueError for lengths that differ.
    """
    logs = [math.log(a / b) for a, b in zip(measured, against, strict=True) if a > 0 and b > 0]
    if len(logs) < FEWEST_PAIRS:
        return None
    count = len(logs)
    draw = random.Random(seed)
    means = sorted(fmean(draw.choices(logs, k=count)) for _ in range(RESAMPLES))
    tail = expanded_tail(count, confidence)
    return Interval(math.exp(fmean(logs)), math.exp(_quantile(means, tail)), math.exp(_quantile(means, 1 - tail)))


def expanded_tail(count: int, confidence: float) -> float:
    """The share of the bootstrap distribution that lies outside on each side, for ``count`` values."""
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
