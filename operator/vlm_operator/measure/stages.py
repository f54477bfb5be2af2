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

from vlm_operator.measure.trace import GPU_CATEGORIES, LAUNCHES, Event, Trace, TraceError, read_events, trace_of

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
    stretches: dict[str, list[Trace]] = {}
    for stage, steps, held in _stretches(marks, events):
        try:
            trace = trace_of(held, device)
        except TraceError:
            continue  # a step that launched nothing
        marked = tuple((mark.mode, mark.batch) for mark in steps)
        stretches.setdefault(stage, []).append(replace(trace, steps=marked))
    if not stretches:
        raise TraceError("the trace holds no kernel and no operator in any step")
    order = [PREFILL, MIXED, DECODE]
    return {stage: _joined(stretches[stage]) for stage in order if stage in stretches}


def _marks(events: Iterable[Event]) -> list[Mark]:
    """In the order of time. A draft model's passes belong to the step that they are made for."""
    found = []
    for event in events:
        if event.get("cat") == "user_annotation" and (match := _MARK.match(event["name"])):
            stage = _STAGES.get(match["stage"])
            if stage is not None:
                found.append(Mark(stage, match["stage"], int(match["batch"]), float(event["ts"])))
    return sorted(found, key=lambda mark: mark.at_us)


def _stretches(marks: list[Mark], events: Sequence[Event]) -> Iterable[tuple[str, list[Mark], list[Event]]]:
    """Neighbouring steps of one stage with what began in them: on the device by when it was launched."""
    runs = [(stage, list(steps)) for stage, steps in groupby(marks, key=lambda mark: mark.stage)]
    begins = [steps[0].at_us for _, steps in runs]
    launched = {_correlation(e): float(e["ts"]) for e in events if e.get("cat") in LAUNCHES}
    held: list[list[Event]] = [[] for _ in runs]
    for event in events:
        at = float(event["ts"])
        if event.get("cat") in GPU_CATEGORIES:
            at = launched.get(_correlation(event), at)
        place = bisect_right(begins, at) - 1
        if place >= 0:
            held[place].append(event)
    return [(stage, steps, each) for (stage, steps), each in zip(runs, held, strict=True)]


def _correlation(event: Event) -> Any:
    arguments: Mapping[str, Any] = event.get("args") or {}
    return arguments.get("correlation")


def _joined(stretches: Sequence[Trace]) -> Trace:
    """Times add up: what lies between two stretches is another stage's."""
    on_gpu = any(trace.on_gpu for trace in stretches)
    kept = [trace for trace in stretches if trace.on_gpu == on_gpu]
    return Trace(
        device=kept[0].device,
        on_gpu=on_gpu,
        pieces=tuple(piece for trace in kept for piece in trace.pieces),
        span_us=sum(trace.span_us for trace in kept),
        busy_us=sum(trace.busy_us for trace in kept),
        steps=tuple(step for trace in kept for step in trace.steps),
    )
