"""How certain a ratio is: an interval for few pairs of rounds.

On each side the wider end of two intervals of the logarithms: Student's, and Hesterberg's expanded percentile bootstrap
("What Teachers Should Know About the Bootstrap", The American Statistician 69:4, 2015, section 3.3). No bootstrap of n values
leaves their range, which holds the true value in at most 1 - 2 / 2^n of symmetric cases (93.75 % for five). Student's interval
has no such bound, but is symmetric even if the values are not; there the bootstrap helps.

scipy takes a second to load, so it is loaded with the first interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 20_000
SEED: Final = 20_260_826
# Fewer say little about their own spread, and a comparison needs an even number: see ``schedule``.
FEWEST_PAIRS: Final = 6


@dataclass(frozen=True)
class Interval:
    """A ratio with its interval, whose ends are ratios as well."""

    value: float
    low: float
    high: float

    @property
    def contains_one(self) -> bool:
        """Whether the interval allows "no difference"."""
        return self.low <= 1.0 <= self.high


def ratio_interval(
    measured: Sequence[float], against: Sequence[float], *, confidence: float = CONFIDENCE
) -> Interval | None:
    """The geometric mean of ``measured[i] / against[i]`` over pairs of rounds, with its interval.

    Pairs stay whole, so what both rounds of a pair share (a busy node, a warm disk) cancels. None for fewer than FEWEST_PAIRS
    pairs of positive values. The same input gives the same interval. Raises ValueError if the lengths differ.
    """
    import numpy as np
    from scipy import stats

    logs = [math.log(a / b) for a, b in zip(measured, against, strict=True) if a > 0 and b > 0]
    if (count := len(logs)) < FEWEST_PAIRS:
        return None
    mean = float(np.mean(logs))
    quantile = float(stats.t.ppf((1 + confidence) / 2, count - 1))
    half = quantile * float(stats.sem(logs))
    # The plain percentile interval is too narrow by about sqrt((n - 1) / n), with a normal quantile instead of Student's.
    inside = 1 - 2 * float(stats.norm.cdf(-math.sqrt(count / (count - 1)) * quantile))
    bootstrap = stats.bootstrap(
        (logs,), np.mean, n_resamples=RESAMPLES, confidence_level=inside, method="percentile", rng=SEED
    ).confidence_interval
    # With logarithms that are all equal, the mean of the resamples differs from ``mean`` by rounding.
    low, high = min(mean - half, float(bootstrap.low)), max(mean + half, float(bootstrap.high))
    return Interval(math.exp(mean), math.exp(min(low, mean)), math.exp(max(high, mean)))


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value below which ``percent`` of 100 of the values lie, interpolated linearly; None for no values."""
    import numpy as np

    return float(np.percentile(values, percent)) if values else None
