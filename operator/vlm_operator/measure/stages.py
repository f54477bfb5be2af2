"""One trace of several forward passes -> a trace of prefill and one of decode, by the engine's marks.

SGLang can record "by stage" itself, but under load it puts steps of one stage into the other one's file: what ends a
recording there is a count of either stage (``_profile_batch_predicate`` of 0.5.23). So all steps are recorded, and told
apart here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from vlm_operator.measure.trace import (
    GPU_CATEGORIES,
    LAUNCHES,
    Event,
    Trace,
    TraceError,
    interval_of,
    read_events,
    trace_of,
)

PREFILL: Final = "prefill"
DECODE: Final = "decode"
MIXED: Final = "mixed"
UNMARKED: Final = "all steps"
# ForwardMode of SGLang 0.5.12 (the first that marks its steps) to 0.5.23 -> the stage that people speak of.
_STAGES: Final = {
    "EXTEND": PREFILL,
    "SPLIT_PREFILL": PREFILL,
    "MIXED": MIXED,
    "DECODE": DECODE,
    "VERIFY": DECODE,
    "TARGET_VERIFY": DECODE,
}
_MARK: Final = re.compile(r"^step\[(?P<stage>\w+) bs=(?P<batch>\d+)")


@dataclass(frozen=True)
class Mark:
    """Where a forward pass begins."""

    stage: str
    mode: str
    """The engine's own word for it."""
    batch: int
    """Requests in it."""
    at_us: float


def read_stages(data: bytes) -> dict[str, Trace]:
    """Stage -> its steps. One of ``UNMARKED`` where the engine marks none. Raises TraceError."""
    events, device = read_events(data)
    return stages_of(events, device)


def stages_of(events: Sequence[Event], device: str = "GPU") -> dict[str, Trace]:
    """The same of complete events: prefill first, then decode. What ran before the first mark is left out.

    Raises TraceError where nothing ran.
    """
    marks = _marks(events)
    if not marks:
        return {UNMARKED: trace_of(events, device)}
    before, stretches = _stretches(marks, events)
    on_gpu = any(event.get("cat") in GPU_CATEGORIES for event in events)
    traces: dict[str, list[Trace]] = {}
    ran: list[tuple[str | None, Event]] = [(None, event) for event in before]
    for stage, steps, held in stretches:
        try:
            trace = trace_of(held, device)
        except TraceError:
            continue  # a step that launched nothing
        if trace.on_gpu == on_gpu:
            marked = tuple((mark.mode, mark.batch) for mark in steps)
            traces.setdefault(stage, []).append(replace(trace, steps=marked))
            ran += [(stage, event) for event in held]
    if not traces:
        raise TraceError("the trace holds no kernel and no operator in any step")
    times = _times([(stage, *interval) for stage, event in ran if (interval := interval_of(event, on_gpu=on_gpu))])
    order = [PREFILL, MIXED, DECODE]
    return {stage: _joined(traces[stage], *times[stage]) for stage in order if stage in traces}


def _marks(events: Iterable[Event]) -> list[Mark]:
    """In the order of time. A draft model's passes belong to the step that they are made for."""
    found = []
    for event in events:
        if event.get("cat") == "user_annotation" and (match := _MARK.match(event["name"])):
            stage = _STAGES.get(match["stage"])
            if stage is not None:
                found.append(Mark(stage, match["stage"], int(match["batch"]), float(event["ts"])))
    return sorted(found, key=lambda mark: mark.at_us)


def _stretches(
    marks: list[Mark], events: Sequence[Event]
) -> tuple[list[Event], list[tuple[str, list[Mark], list[Event]]]]:
    """What began before the first mark, and neighbouring steps of one stage with what began in them: on the device by
    when it was launched."""
    runs = [(stage, list(steps)) for stage, steps in groupby(marks, key=lambda mark: mark.stage)]
    begins = [steps[0].at_us for _, steps in runs]
    launched = {_correlation(e): float(e["ts"]) for e in events if e.get("cat") in LAUNCHES}
    before: list[Event] = []
    held: list[list[Event]] = [[] for _ in runs]
    for event in events:
        at = float(event["ts"])
        if event.get("cat") in GPU_CATEGORIES:
            at = launched.get(_correlation(event), at)
        place = bisect_right(begins, at) - 1
        (held[place] if place >= 0 else before).append(event)
    return before, [(stage, steps, each) for (stage, steps), each in zip(runs, held, strict=True)]


def _correlation(event: Event) -> Any:
    arguments: Mapping[str, Any] = event.get("args") or {}
    return arguments.get("correlation")


def _times(pieces: Iterable[tuple[str | None, float, float]]) -> dict[str, tuple[float, float]]:
    """Stage -> busy and idle microseconds, of pieces with their stage (None: of none), start and end.

    Each moment from the first stage's first piece to the end counts once, so that the times of all stages add up to what
    passed: while something runs for what began first, and while nothing runs for the piece that ends the waiting, since
    the device was waiting for its launch.
    """
    found: dict[str | None, tuple[float, float]] = {}
    until = float("-inf")
    for stage, start, end in sorted(pieces, key=lambda piece: piece[1:]):
        busy, idle = found.get(stage, (0.0, 0.0))
        if any(each is not None for each in found):
            idle += max(start - until, 0.0)
        found[stage] = busy + max(end - max(start, until), 0.0), idle
        until = max(until, end)
    return {stage: times for stage, times in found.items() if stage is not None}


def _joined(stretches: Sequence[Trace], busy_us: float, idle_us: float) -> Trace:
    return Trace(
        device=stretches[0].device,
        on_gpu=stretches[0].on_gpu,
        pieces=tuple(piece for trace in stretches for piece in trace.pieces),
        span_us=busy_us + idle_us,
        busy_us=busy_us,
        steps=tuple(step for trace in stretches for step in trace.steps),
    )
