"""One measurement, whole: what was sent, what came back, and what it shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vlm_bench.load.schedule import Load
from vlm_bench.statistics.comparison import Comparison, Knee, compare, knee
from vlm_bench.statistics.remarks import counted, not_in_effect, plain, remarks
from vlm_bench.statistics.rounds import Round, Summary, summarize
from vlm_bench.twins.twin import Change


@dataclass(frozen=True)
class Result:
    """Everything that one Job measured."""

    service: str
    command: str
    load: Load
    seed: int
    targets: tuple[str, ...]
    rounds: tuple[Round, ...]
    planned: Mapping[str, Any]
    """The settings that the service's plan passes to the engine."""
    notes: tuple[str, ...] = ()
    complete: bool = True
    error: str | None = None
    """What ended the measurement early."""
    change: Change | None = None
    """How the second target differs, if it is a twin."""
    withheld: str | None = None
    """Why the two must not be compared, such as replicas that were added meanwhile."""

    @cached_property
    def summaries(self) -> list[Summary]:
        """One for each target and concurrency."""
        return summarize(self.rounds)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """One for each concurrency; none for a single target."""
        if len(self.targets) != 2:
            return []
        withheld = self.withheld or not_in_effect(self.change, self.settings(0), self.settings(1))
        return compare(self.rounds, self.targets, withheld)

    @cached_property
    def knees(self) -> list[Knee | None]:
        """For each target."""
        return [knee([s for s in self.summaries if s.target == index]) for index in range(len(self.targets))]

    @cached_property
    def remarks(self) -> list[str]:
        """The notes, and the reasons to doubt the numbers."""
        return [*self.notes, *remarks(self.targets, self.rounds, self.summaries, self.comparisons)]

    @property
    def has_curve(self) -> bool:
        """Whether several concurrencies were measured."""
        return len(self.load.concurrency) > 1

    def failure(self) -> str | None:
        """One sentence about what went wrong; None if nothing did."""
        if self.error is not None:
            return f"the measurement ended early: {self.error}"
        for index, name in enumerate(self.targets):
            summaries = [s for s in self.summaries if s.target == index]
            failed, sent = sum(s.failures for s in summaries), sum(s.requests for s in summaries)
            if failed:
                text = max((e for s in summaries for e in s.errors.items()), key=lambda e: e[1])[0]
                ended = "" if self.complete else ", which ended the measurement"
                return f"{failed} of {sent} requests to {name} failed{ended}: {text}"
        if not self.complete:
            last = next((e for r in reversed(self.rounds) for e in r.errors), "no reason was given")
            return f"no request was answered in a warm-up: {last}"
        return None

    def settings(self, target: int) -> dict[str, Any]:
        """The settings that the target's engine reported last."""
        return dict(next((r.settings for r in reversed(self.rounds) if r.target == target and r.settings), {}))

    def differing(self) -> dict[str, tuple[Any, Any]]:
        """Settings that the first target's engine reports otherwise than planned: planned, reported."""
        reported = self.settings(0)
        return {
            name: (value, reported[name])
            for name, value in self.planned.items()
            if name in reported and plain(reported[name]) != plain(value)
        }

    def counted(self, target: int) -> dict[str, float]:
        """By how much the engine's counters rose, by their names in tables."""
        return counted(self.rounds, target)

    def to_json(self) -> dict[str, Any]:
        """For files. The rounds are in a file of their own."""
        change = self.change
        return {
            "service": self.service,
            "command": self.command,
            "load": {**self.load.to_json(), "concurrency": list(self.load.concurrency), "firstSeed": self.seed},
            "complete": self.complete,
            "error": self.failure(),
            "targets": [
                {
                    "name": name,
                    "results": [s.to_json() for s in self.summaries if s.target == index],
                    "knee": at.concurrency if (at := self.knees[index]) is not None else None,
                    "engine": {"settings": self.settings(index), "counted": self.counted(index)},
                }
                for index, name in enumerate(self.targets)
            ],
            "change": change and {"setting": change.name, "service": change.planned, "twin": change.measured},
            "comparisons": [c.to_json() for c in self.comparisons],
            "notes": self.remarks,
        }
