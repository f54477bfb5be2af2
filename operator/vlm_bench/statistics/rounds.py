"""Rounds: the lines of the load's program as values, and the summary of several rounds."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from vlm_bench.programs.driver import MARK
from vlm_bench.statistics.interval import percentile

PERCENTS: Final = (50, 95, 99)
# Rounds of one load that differ by this factor shared the machine with other work.
UNSTEADY: Final = 2.0


@dataclass(frozen=True)
class Answer:
    """One answered request. TTFT: time to first token; TPOT: time per output token after the first."""

    ttft_ms: float
    tpot_ms: float
    latency_ms: float
    tokens: int


@dataclass(frozen=True)
class Round:
    """One run of the benchmark against one target."""

    number: int
    round: int
    target: int
    concurrency: int
    requests: int
    seconds: float
    """From the first request to the last answer."""
    answers: tuple[Answer, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    """Error -> how often."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """By how much the engine's own counters rose."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the engine reports."""
    asked_tokens: int = 0
    """Output tokens requested of each answer."""
    reports_tokens: bool = True
    """Whether the server reports how many tokens an answer has; if not, it is assumed to have those requested."""
    cpu_share: float = 0.0
    """The share of its core for which the load's program was busy, from 0 to 1."""

    @property
    def counted(self) -> bool:
        """Whether it counts; round 0 is the warm-up."""
        return self.round > 0

    @property
    def failures(self) -> int:
        """Requests without an answer."""
        return sum(self.errors.values())

    @property
    def short_answers(self) -> int:
        """Answers with fewer tokens than requested."""
        return sum(a.tokens < self.asked_tokens for a in self.answers)

    @property
    def requests_per_second(self) -> float:
        """Answered requests per second."""
        return len(self.answers) / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second."""
        return sum(a.tokens for a in self.answers) / self.seconds if self.seconds > 0 else 0.0


def read_line(line: str) -> dict[str, Any] | None:
    """The event in a line of the pod's log; None for any other line."""
    if not line.startswith(MARK):
        return None
    try:
        event: dict[str, Any] = json.loads(line.removeprefix(MARK))
    except ValueError:
        return None
    return event


def round_of(event: Mapping[str, Any]) -> Round:
    """A ``round`` event as a value."""
    plain: dict[str, Any] = {
        name: event[name] for name in ("number", "round", "target", "concurrency", "requests", "seconds")
    }
    answers = tuple(Answer(ttft, tpot, latency, int(tokens)) for ttft, tpot, latency, tokens in event["answers"])
    maps: dict[str, Any] = {name: event.get(name) or {} for name in ("errors", "counters", "settings")}
    share = event.get("cpu_seconds", 0.0) / (event["seconds"] * event.get("cpu_cores", 1.0) or 1.0)
    return Round(
        **plain,
        answers=answers,
        **maps,
        asked_tokens=int(event.get("asked_tokens") or 0),
        reports_tokens=bool(event.get("reports_tokens", True)),
        cpu_share=min(share, 1.0),
    )


@dataclass(frozen=True)
class Summary:
    """Several rounds of one target at one concurrency: means of rates over rounds, percentiles over all requests."""

    target: int
    concurrency: int
    rounds: int
    requests: int
    failures: int
    errors: Mapping[str, int]
    requests_per_second: float
    slowest_round: float
    fastest_round: float
    tokens_per_second: float
    ttft_ms: Mapping[int, float | None]
    """Percent -> milliseconds."""
    tpot_ms: Mapping[int, float | None]
    latency_ms: float | None
    """The mean time of a whole answer."""

    @property
    def unsteady(self) -> bool:
        """Whether rounds differ too much for these numbers to mean anything."""
        return self.fastest_round > UNSTEADY * self.slowest_round

    def to_json(self) -> dict[str, Any]:
        """For files and the status."""
        return {
            "concurrency": self.concurrency,
            "rounds": self.rounds,
            "requests": self.requests,
            "failures": self.failures,
            "errors": dict(self.errors),
            "requestsPerSecond": round(self.requests_per_second, 3),
            "outputTokensPerSecond": round(self.tokens_per_second, 1),
            **{f"ttftP{p}Milliseconds": _rounded(self.ttft_ms[p]) for p in PERCENTS},
            **{f"tpotP{p}Milliseconds": _rounded(self.tpot_ms[p]) for p in PERCENTS},
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def summarize(rounds: Iterable[Round]) -> list[Summary]:
    """One summary for each target and concurrency, in that order. The warm-up is left out."""
    groups: dict[tuple[int, int], list[Round]] = {}
    for each in rounds:
        if each.counted:
            groups.setdefault((each.target, each.concurrency), []).append(each)
    return [_summary(target, concurrency, each) for (target, concurrency), each in sorted(groups.items())]


def _summary(target: int, concurrency: int, rounds: Sequence[Round]) -> Summary:
    answers = [answer for each in rounds for answer in each.answers]
    errors: Counter[str] = sum((Counter(each.errors) for each in rounds), Counter())
    rates = [each.requests_per_second for each in rounds]
    ttft = [answer.ttft_ms for answer in answers]
    tpot = [answer.tpot_ms for answer in answers if answer.tokens > 1]
    return Summary(
        target=target,
        concurrency=concurrency,
        rounds=len(rounds),
        requests=sum(each.requests for each in rounds),
        failures=sum(each.failures for each in rounds),
        errors=dict(errors),
        requests_per_second=fmean(rates),
        slowest_round=min(rates),
        fastest_round=max(rates),
        tokens_per_second=fmean(each.tokens_per_second for each in rounds),
        ttft_ms={p: percentile(ttft, p) for p in PERCENTS},
        tpot_ms={p: percentile(tpot, p) for p in PERCENTS},
        latency_ms=fmean(answer.latency_ms for answer in answers) if answers else None,
    )


def counter_increases(rounds: Iterable[Round], target: int) -> dict[str, float]:
    """By how much a target's counters rose over its counted rounds."""
    total: dict[str, float] = {}
    for each in rounds:
        if each.counted and each.target == target:
            for name, value in each.counters.items():
                total[name] = total.get(name, 0.0) + value
    return total
