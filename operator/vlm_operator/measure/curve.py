"""Throughput and latency over concurrency, and where more requests at once stop paying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vlm_operator.measure.rounds import Summary

NO_KNEE: Final = (
    "no knee is named: that takes three concurrencies at which every request is answered, "
    "in rounds that do not differ widely"
)
METHOD: Final = (
    "the knee is where requests/s divided by the mean latency is greatest (Kleinrock's power: before it throughput grows "
    "faster than latency, behind it latency grows faster)"
)


@dataclass(frozen=True)
class Knee:
    """The concurrency at the knee, and what to say of it."""

    concurrency: int
    sentence: str


def power(point: Summary) -> float:
    """Requests a second per second of latency."""
    return 0.0 if not point.latency_ms else point.requests_per_second / (point.latency_ms / 1000)


def knee(points: Sequence[Summary]) -> Knee | None:
    """The knee of one target's curve; None of fewer than three points that count.

    Points do not count where requests failed, or where rounds differ widely. ``points`` have different concurrencies,
    in any order.
    """
    sound = sorted(
        (p for p in points if not p.failures and not p.unsteady and p.latency_ms), key=lambda p: p.concurrency
    )
    if len(sound) < 3:
        return None
    best = max(sound, key=power)
    said = f"the knee is at {best.concurrency} at once: {best.requests_per_second:.2f} requests/s"
    if best is sound[-1]:
        said += f"; it is the highest concurrency that {_counts(sound[-1], points)}, so the knee may lie beyond it"
    elif best is sound[0]:
        said += f"; it is the lowest concurrency that {_counts(sound[0], points)}: more at once only waits"
    return Knee(best.concurrency, said)


def _counts(end: Summary, points: Sequence[Summary]) -> str:
    """Says of the end of what counts whether it is the end of what was measured."""
    ordered = sorted(p.concurrency for p in points)
    if end.concurrency in (ordered[0], ordered[-1]):
        return "was measured"
    return "was measured without failures, in rounds that do not differ widely"
