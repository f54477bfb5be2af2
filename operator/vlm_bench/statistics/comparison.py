"""Two targets compared: by how much one is faster, how certain that is, and whether a verdict is possible. And the knee of a
curve: throughput and latency over concurrency, and from where more requests at once do not pay."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_bench.statistics.interval import CONFIDENCE, FEWEST_PAIRS, Interval, percentile, ratio_interval
from vlm_bench.statistics.rounds import Round, Summary

NO_KNEE: Final = (
    "no knee: it takes three concurrencies at which every request was answered, in rounds that do not differ widely"
)
METHOD: Final = (
    "the knee is where requests/s divided by the mean latency is greatest (Kleinrock's power): below it throughput grows "
    "faster than latency, above it latency grows faster"
)


@dataclass(frozen=True)
class Measure:
    """One number of a round."""

    name: str
    of: Callable[[Round], float]
    more_is_better: bool = True


# The first decides: only requests/s name a winner.
MEASURES: Final = (
    Measure("requests/s", lambda r: r.requests_per_second),
    Measure("output tokens/s", lambda r: r.tokens_per_second),
    Measure("TTFT p50", lambda r: percentile([a.ttft_ms for a in r.answers], 50) or 0.0, more_is_better=False),
    Measure(
        "TPOT p50",
        lambda r: percentile([a.tpot_ms for a in r.answers if a.tokens > 1], 50) or 0.0,
        more_is_better=False,
    ),
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
    """Requests of this concurrency without an answer, also in rounds that only one of the two has."""
    withheld: str | None = None
    """Why there is no verdict, whatever the ratio."""

    @property
    def decisive(self) -> Interval | None:
        """The interval of requests/s."""
        return self.intervals[0][1]

    @property
    def winner(self) -> str | None:
        """Who answers more requests per second; None if the interval includes 1, or there is no verdict."""
        interval = self.decisive
        if interval is None or interval.contains_one or self.failures or self.withheld:
            return None
        return self.first if interval.value > 1 else self.second

    def sentence(self) -> str:
        """The verdict, without a full stop."""
        interval = self.decisive
        if interval is None and self.pairs >= FEWEST_PAIRS:
            return f"no winner: {self.failures} requests failed, in some rounds all of them"
        if interval is None:
            return f"no verdict: {self.pairs} pairs of rounds are too few; measure {FEWEST_PAIRS} or more (--rounds)"
        numbers = f"{interval.value:.3f}, {CONFIDENCE:.0%} interval {interval.low:.3f} to {interval.high:.3f}"
        if self.failures:
            return f"no winner: {self.failures} requests failed, and failed requests cost no time (ratio {numbers})"
        if self.withheld:
            return f"no verdict: {self.withheld} (ratio {numbers})"
        if self.winner is None:
            return f"no difference shown: {self.first} to {self.second} is {numbers}, which includes 1"
        faster, slower, ratio = self.first, self.second, interval.value
        if ratio < 1:
            faster, slower, ratio = slower, faster, 1 / ratio
        more = f"{ratio - 1:.1%} more requests/s than" if ratio < 2 else f"{ratio:.1f} times the requests/s of"
        return f"{faster} answers {more} {slower} ({self.first} to {self.second}: {numbers})"

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
    """A comparison of two targets for each concurrency.

    Only rounds in which both were measured count for the ratio; a failed request counts in any round.
    """
    levels: dict[int, dict[int, dict[int, Round]]] = {}
    for each in rounds:
        if each.counted:
            levels.setdefault(each.concurrency, {}).setdefault(each.round, {})[each.target] = each
    result = []
    for concurrency, by_round in levels.items():
        pairs = [(both[0], both[1]) for both in by_round.values() if len(both) == 2]
        intervals = tuple(
            (m, ratio_interval([m.of(a) for a, _ in pairs], [m.of(b) for _, b in pairs])) for m in MEASURES
        )
        failures = sum(each.failures for both in by_round.values() for each in both.values())
        result.append(Comparison(names[0], names[1], concurrency, len(pairs), intervals, failures, withheld))
    return result


@dataclass(frozen=True)
class Knee:
    """The concurrency at the knee, and a sentence about it."""

    concurrency: int
    sentence: str


def power(point: Summary) -> float:
    """Requests per second per second of latency."""
    return 0.0 if not point.latency_ms else point.requests_per_second / (point.latency_ms / 1000)


def knee(points: Sequence[Summary]) -> Knee | None:
    """The knee of one target's curve; None for fewer than three points that count.

    Points with failed requests, or with rounds that differ widely, do not count. ``points`` have different concurrencies, in
    any order.
    """
    sound = sorted(
        (p for p in points if not p.failures and not p.unsteady and p.latency_ms), key=lambda p: p.concurrency
    )
    if len(sound) < 3:
        return None
    best = max(sound, key=power)
    sentence = f"the knee is at concurrency {best.concurrency}: {best.requests_per_second:.2f} requests/s"
    ends = min(p.concurrency for p in points), max(p.concurrency for p in points)
    measured = "measured" if best.concurrency in ends else "without failures or rounds that differ widely"
    if best is sound[-1]:
        sentence += f"; it is the highest concurrency {measured}, so the knee may be above it"
    elif best is sound[0]:
        sentence += f"; it is the lowest concurrency {measured}: more requests at once only wait"
    return Knee(best.concurrency, sentence)
