"""One measurement, whole: what was sent, what came back, and what may be said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vlm_operator.measure.cautions import cautions, in_words, not_in_force, plain
from vlm_operator.measure.compare import Comparison, compare
from vlm_operator.measure.curve import Knee, knee
from vlm_operator.measure.load import Load
from vlm_operator.measure.remarks import remarks_of
from vlm_operator.measure.rounds import Round, Summary, counted_by_engine, summarize
from vlm_operator.measure.twin import Change


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
    """What the service's plan passes to the engine."""
    notes: tuple[str, ...] = ()
    complete: bool = True
    error: str | None = None
    """What ended the measurement early."""
    change: Change | None = None
    """What the second target has that the first has not, where that is a twin."""
    withheld: str | None = None
    """Why the two must not be compared after all, such as replicas that came or went meanwhile."""

    @cached_property
    def summaries(self) -> list[Summary]:
        """One for each target and concurrency."""
        return summarize(self.rounds)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """One for each concurrency; none for a target alone."""
        if len(self.targets) != 2:
            return []
        return compare(
            self.rounds, self.targets, self.withheld or not_in_force(self.change, self.said(0), self.said(1))
        )

    @cached_property
    def knees(self) -> list[Knee | None]:
        """For each target."""
        return [knee([s for s in self.summaries if s.target == index]) for index in range(len(self.targets))]

    @cached_property
    def remarks(self) -> list[str]:
        """The notes, and what the rounds themselves give reason to say."""
        return [
            *self.notes,
            *cautions(self.targets, self.rounds, self.comparisons),
            *remarks_of(self.targets, self.rounds, self.summaries),
        ]

    @property
    def has_curve(self) -> bool:
        """Whether several concurrencies were measured."""
        return len(self.load.concurrency) > 1

    @property
    def failures(self) -> int:
        """Requests of counted rounds that were not answered."""
        return sum(each.failures for each in self.rounds if each.counted)

    def failure(self) -> str | None:
        """One sentence about what went wrong; None where nothing did."""
        if self.error is not None:
            return f"the measurement ended early: {self.error}"
        for index, name in enumerate(self.targets):
            found = [s for s in self.summaries if s.target == index]
            failed, sent = sum(s.failures for s in found), sum(s.requests for s in found)
            if failed:
                text = max((e for s in found for e in s.errors.items()), key=lambda e: e[1])[0]
                ended = "" if self.complete else ", so the measurement ended there"
                return f"{failed} of {sent} requests to {name} failed{ended}: {text}"
        if not self.complete:
            last = next((e for r in reversed(self.rounds) for e in r.errors), "no reason was given")
            return f"no request was answered in a warm-up: {last}"
        return None

    def said(self, target: int) -> dict[str, Any]:
        """The settings that the engine told last."""
        return dict(next((r.settings for r in reversed(self.rounds) if r.target == target and r.settings), {}))

    def differs(self) -> dict[str, tuple[Any, Any]]:
        """Settings of the first target that the engine told otherwise than planned: planned, told."""
        said = self.said(0)
        return {n: (v, said[n]) for n, v in self.planned.items() if n in said and plain(said[n]) != plain(v)}

    def counted(self, target: int) -> dict[str, float]:
        """The engine's counters in words, those that were served."""
        return in_words(counted_by_engine(self.rounds, target))

    def to_json(self) -> dict[str, Any]:
        """For files. The rounds stand in a file of their own."""
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
                    "knee": found.concurrency if (found := self.knees[index]) is not None else None,
                    "engine": {"settings": self.said(index), "counted": self.counted(index)},
                }
                for index, name in enumerate(self.targets)
            ],
            "change": None
            if self.change is None
            else {"setting": self.change.name, "service": self.change.planned, "twin": self.change.measured},
            "comparisons": [c.to_json() for c in self.comparisons],
            "notes": self.remarks,
        }
