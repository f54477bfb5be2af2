"""Two targets beside each other: by how much one is faster, how sure that is, and whether anything may be said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_operator.measure.interval import CONFIDENCE, FEWEST_PAIRS, Interval, percentile, ratio_interval
from vlm_operator.measure.rounds import Round


@dataclass(frozen=True)
class Measure:
    """One number of a round."""

    name: str
    of: Callable[[Round], float]
    more_is_better: bool = True


def _median_ttft(each: Round) -> float:
    return percentile([a.ttft_ms for a in each.answers], 50) or 0.0


def _median_tpot(each: Round) -> float:
    return percentile([a.tpot_ms for a in each.answers if a.tokens > 1], 50) or 0.0


# The first decides: a winner is named by requests a second alone.
MEASURES: Final = (
    Measure("requests/s", lambda r: r.requests_per_second),
    Measure("output tokens/s", lambda r: r.tokens_per_second),
    Measure("TTFT p50", _median_ttft, more_is_better=False),
    Measure("TPOT p50", _median_tpot, more_is_better=False),
)


@dataclass(frozen=True)
class Comparison:
    """``first`` divided by ``second``, round by round, at one concurrency."""

    first: str
    second: str
    concurrency: int
    pairs: int
    intervals: tuple[tuple[Measure, Interval | None], ...]
    failures: int = 0
    """Requests of this concurrency that were not answered, also of rounds that only one of both has."""
    withheld: str | None = None
    """Why no verdict may be given, whatever the ratio."""

    @property
    def decisive(self) -> Interval | None:
        """The interval of requests a second."""
        return self.intervals[0][1]

    @property
    def winner(self) -> str | None:
        """Who answers more requests a second; None where the interval holds 1, or no verdict may be given."""
        found = self.decisive
        if found is None or found.holds_one or self.failures or self.withheld:
            return None
        return self.first if found.value > 1 else self.second

    def sentence(self) -> str:
        """The verdict in words."""
        found = self.decisive
        if found is None and self.pairs >= FEWEST_PAIRS:
            return f"no winner: {self.failures} requests failed, in some rounds all of them"
        if found is None:
            return f"{self.pairs} pairs of rounds are too few to say anything: {FEWEST_PAIRS} are the fewest, more is better"
        told = f"{found.value:.3f}, {CONFIDENCE:.0%} interval {found.low:.3f} to {found.high:.3f}"
        if self.failures:
            return f"no winner: {self.failures} requests failed, and what failed cost no time (ratio {told})"
        if self.withheld:
            return f"no verdict: {self.withheld} (ratio {told})"
        if self.winner is None:
            return f"no difference is shown: {self.first} to {self.second} is {told}, which holds 1"
        faster, slower, share = self.first, self.second, found.value
        if found.value < 1:
            faster, slower, share = slower, faster, 1 / found.value
        more = f"{share - 1:.1%} more requests/s than" if share < 2 else f"{share:.1f} times the requests/s of"
        return f"{faster} answers {more} {slower} ({self.first} to {self.second}: {told})"

    def to_json(self) -> dict[str, Any]:
        """For files."""
        return {
            "first": self.first,
            "second": self.second,
            "concurrency": self.concurrency,
            "pairs": self.pairs,
            "confidence": CONFIDENCE,
            "winner": self.winner,
            "failures": self.failures,
            "withheld": self.withheld,
            "ratios": {
                m.name: None if i is None else {"ratio": i.value, "low": i.low, "high": i.high}
                for m, i in self.intervals
            },
        }


def compare(rounds: Iterable[Round], names: Sequence[str], withheld: str | None = None) -> list[Comparison]:
    """A comparison of the first two targets for each concurrency.

    For the ratio only rounds count in which both were measured; a request that failed counts in whichever round.
    """
    first, second = 0, 1
    levels: dict[int, dict[int, dict[int, Round]]] = {}
    for each in rounds:
        if each.counted and each.target in (first, second):
            levels.setdefault(each.concurrency, {}).setdefault(each.round, {})[each.target] = each
    found = []
    for concurrency, by_round in levels.items():
        pairs = [(both[first], both[second]) for both in by_round.values() if len(both) == 2]
        intervals = tuple(
            (m, ratio_interval([m.of(a) for a, _ in pairs], [m.of(b) for _, b in pairs])) for m in MEASURES
        )
        failures = sum(each.failures for both in by_round.values() for each in both.values())
        found.append(Comparison(names[first], names[second], concurrency, len(pairs), intervals, failures, withheld))
    return found
