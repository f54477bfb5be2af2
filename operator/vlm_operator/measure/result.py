"""One measurement, whole: what was sent, what came back, and what may be said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from vlm_operator.measure.compare import Comparison, compare
from vlm_operator.measure.curve import Knee, knee
from vlm_operator.measure.load import Load
from vlm_operator.measure.remarks import remarks_of
from vlm_operator.measure.rounds import Round, Summary, counted_by_engine, summarize
from vlm_operator.measure.twin import Change

# Counter of the engine -> how tables call it.
COUNTED: Final[Mapping[str, str]] = {
    "vlmserve_images_received_total": "images received",
    "vlmserve_images_repeated_total": "images that had come before",
    "vlmserve_image_pool_fallbacks_total": "image features without room in the pool",
    "sglang:cached_tokens_total": "prompt tokens from the prefix cache",
    "sglang:prompt_tokens_total": "prompt tokens",
    "sglang:num_retracted_requests_total": "requests taken back for want of memory",
}


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

    @cached_property
    def summaries(self) -> list[Summary]:
        """One for each target and concurrency."""
        return summarize(self.rounds)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """One for each concurrency; none for a target alone."""
        return compare(self.rounds, self.targets) if len(self.targets) == 2 else []

    @cached_property
    def knees(self) -> list[Knee | None]:
        """For each target."""
        return [knee([s for s in self.summaries if s.target == index]) for index in range(len(self.targets))]

    @cached_property
    def remarks(self) -> list[str]:
        """The notes, and what the rounds themselves give reason to say."""
        return [*self.notes, *remarks_of(self.targets, self.rounds, self.summaries)]

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
        return {n: (v, said[n]) for n, v in self.planned.items() if n in said and _plain(said[n]) != _plain(v)}

    def counted(self, target: int) -> dict[str, float]:
        """The engine's counters in words, those that were served."""
        found = counted_by_engine(self.rounds, target)
        return {text: found[name] for name, text in COUNTED.items() if name in found}

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
            "comparisons": [c.to_json() for c in self.comparisons],
            "notes": self.remarks,
        }


def _plain(value: Any) -> str:
    """``/server_info`` tells variables as texts and flags as values."""
    return str(value).lower()
