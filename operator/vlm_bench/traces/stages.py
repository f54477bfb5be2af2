"""One trace of several forward passes -> a trace of prefill and one of decode, by the engine's marks, and what they show.

SGLang can record "by stage" itself, but under load it puts steps of one stage into the other one's file: a count of either
stage ends the recording there (``_profile_batch_predicate`` of 0.5.23). So all steps are recorded and separated here.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Final

from vlm_bench.traces.gemms import Gemm, gemms, ridge_of
from vlm_bench.traces.kernels import Work, short, sum_by_work
from vlm_bench.traces.trace import (
    GPU_CATEGORIES,
    LAUNCHES,
    Event,
    Trace,
    TraceError,
    argument,
    interval_of,
    read_events,
    trace_of,
)

PREFILL: Final = "prefill"
DECODE: Final = "decode"
MIXED: Final = "mixed"
UNMARKED: Final = "all steps"
# ForwardMode of SGLang 0.5.12 (the first that marks its steps) to 0.5.23 -> the usual name of the stage.
_STAGES: Final = {
    "EXTEND": PREFILL,
    "SPLIT_PREFILL": PREFILL,
    "MIXED": MIXED,
    "DECODE": DECODE,
    "VERIFY": DECODE,
    "TARGET_VERIFY": DECODE,
}
_MARK: Final = re.compile(r"^step\[(?P<stage>\w+) bs=(?P<batch>\d+)")
# Kernels and GEMMs of a stage that files keep.
KEPT: Final = 48


@dataclass(frozen=True)
class Mark:
    """Where a forward pass begins."""

    stage: str
    mode: str
    """The engine's own name of the stage."""
    batch: int
    """Requests in the pass."""
    at_us: float


def read_stages(data: bytes) -> dict[str, Trace]:
    """Stage -> its steps; the one key UNMARKED if the engine marks none. Raises TraceError."""
    return stages_of(*read_events(data))


def stages_of(events: Sequence[Event], device: str = "GPU") -> dict[str, Trace]:
    """The same from complete events: prefill first, then decode. What ran before the first mark is left out.

    Raises TraceError if nothing ran.
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
    return {stage: _joined(traces[stage], *times[stage]) for stage in (PREFILL, MIXED, DECODE) if stage in traces}


def _marks(events: Iterable[Event]) -> list[Mark]:
    """In order of time. A draft model's passes belong to the step that they are made for."""
    matches = (
        (event, match)
        for event in events
        if event.get("cat") == "user_annotation" and (match := _MARK.match(event["name"]))
    )
    marks = [
        Mark(_STAGES[match["stage"]], match["stage"], int(match["batch"]), float(event["ts"]))
        for event, match in matches
        if match["stage"] in _STAGES
    ]
    return sorted(marks, key=lambda mark: mark.at_us)


def _stretches(
    marks: list[Mark], events: Sequence[Event]
) -> tuple[list[Event], list[tuple[str, list[Mark], list[Event]]]]:
    """What began before the first mark, and neighbouring steps of one stage with what began in them: on the device by
    when it was launched."""
    runs = [(stage, list(steps)) for stage, steps in groupby(marks, key=lambda mark: mark.stage)]
    begins = [steps[0].at_us for _, steps in runs]
    launched = {argument(e, "correlation"): float(e["ts"]) for e in events if e.get("cat") in LAUNCHES}
    before: list[Event] = []
    held: list[list[Event]] = [[] for _ in runs]
    for event in events:
        at = float(event["ts"])
        if event.get("cat") in GPU_CATEGORIES:
            at = launched.get(argument(event, "correlation"), at)
        place = bisect_right(begins, at) - 1
        (held[place] if place >= 0 else before).append(event)
    return before, [(stage, steps, each) for (stage, steps), each in zip(runs, held, strict=True)]


def _times(pieces: Iterable[tuple[str | None, float, float]]) -> dict[str, tuple[float, float]]:
    """Stage -> busy and idle microseconds, from pieces with their stage (None: of none), start and end.

    Each moment from the first stage's first piece to the end counts once, so that the times of all stages add up to the time
    that passed: while something runs, for what began first; while nothing runs, for the next piece, whose launch the device
    was waiting for.
    """
    times: dict[str | None, tuple[float, float]] = {}
    until = float("-inf")
    for stage, start, end in sorted(pieces, key=lambda piece: piece[1:]):
        busy, idle = times.get(stage, (0.0, 0.0))
        if any(each is not None for each in times):
            idle += max(start - until, 0.0)
        times[stage] = busy + max(end - max(start, until), 0.0), idle
        until = max(until, end)
    return {stage: each for stage, each in times.items() if stage is not None}


def _joined(stretches: Sequence[Trace], busy_us: float, idle_us: float) -> Trace:
    return replace(
        stretches[0],
        pieces=tuple(piece for trace in stretches for piece in trace.pieces),
        span_us=busy_us + idle_us,
        busy_us=busy_us,
        steps=tuple(step for trace in stretches for step in trace.steps),
    )


@dataclass(frozen=True)
class Kernel:
    """All runs of one kernel or operator with the same shapes."""

    name: str
    work: Work
    shapes: tuple[tuple[int, ...], ...]
    count: int
    total_us: float

    def to_json(self) -> dict[str, Any]:
        """For files."""
        return {
            "name": self.name, "work": self.work.value, "shapes": self.shapes, "count": self.count,
            "microseconds": self.total_us,
        }  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """One stage of serving: prefill or decode."""

    name: str
    trace: Trace

    @cached_property
    def ridge(self) -> float | None:
        """Operations per byte below which memory bandwidth limits a kernel here; None if unknown."""
        return ridge_of(self.trace.device) if self.trace.on_gpu else None

    @cached_property
    def gemms(self) -> list[Gemm]:
        """The matrix products, longest total time first."""
        return gemms(self.trace)

    def by_work(self) -> dict[Work, float]:
        """Kind of work -> microseconds. Their sum is the trace's ``work_us``."""
        return sum_by_work((piece.work, piece.duration_us) for piece in self.trace.pieces)

    def gemm_share(self) -> float:
        """The share of the kernels' or operators' time that is matrix products, those of the vision encoder included."""
        operators = self.trace.work_us - self.by_work().get(Work.HOST, 0.0)
        return sum(gemm.total_us for gemm in self.gemms) / operators if operators else 0.0

    def bandwidth_us(self) -> float:
        """Time of the matrix products that memory bandwidth limits."""
        return sum(g.total_us for g in self.gemms if g.is_limited_by_bandwidth(self.ridge))

    def kernels(self) -> list[Kernel]:
        """The kernels, longest total time first."""
        runs: Counter[Any] = Counter()
        times: dict[Any, float] = {}
        for piece in self.trace.pieces:
            key = (piece.name, piece.work, piece.shapes)
            runs[key] += 1
            times[key] = times.get(key, 0.0) + piece.duration_us
        kernels = [Kernel(short(key[0]), key[1], key[2], runs[key], time) for key, time in times.items()]
        return sorted(kernels, key=lambda kernel: -kernel.total_us)

    def sentence(self) -> str:
        """What stands out."""
        trace = self.trace
        parts = [f"{self.gemm_share():.0%} of the {'kernels' if trace.on_gpu else 'operators'}' time is GEMMs"]
        if trace.span_us:
            parts.append(f"idle for {trace.idle_us / trace.span_us:.0%} of {trace.span_us / 1000:,.1f} ms")
        if self.ridge is not None:
            share = self.bandwidth_us() / trace.work_us if trace.work_us else 0.0
            parts.append(
                f"GEMMs limited by memory bandwidth take {share:.0%} "
                f"(below {self.ridge:.0f} operations per byte on {trace.device})"
            )
        elif trace.on_gpu:
            parts.append(f"which GEMMs memory bandwidth limits is unknown: {trace.device} is not in the table of GPUs")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """For files."""
        return {
            "stage": self.name,
            "device": self.trace.device,
            "spanMicroseconds": self.trace.span_us,
            "busyMicroseconds": self.trace.busy_us,
            "idleMicroseconds": self.trace.idle_us,
            "workMicroseconds": {work.value: time for work, time in self.by_work().items()},
            "gemmShare": self.gemm_share(),
            "steps": [{"stage": stage, "batch": batch} for stage, batch in self.trace.steps],
            "kernels": [kernel.to_json() for kernel in self.kernels()[:KEPT]],
            "gemms": [gemm.to_json(self.ridge) for gemm in self.gemms[:KEPT]],
        }
