"""A trace of PyTorch's profiler -> pieces of work that add up: kernels of the GPU, else operators of the CPU."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from vlm_operator.measure.kernels import Work, is_vision_frame, kernel_work, operator_work

Event = Mapping[str, Any]

GPU_CATEGORIES: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES: Final = frozenset({"cuda_runtime", "cuda_driver"})
KEPT_CATEGORIES: Final = GPU_CATEGORIES | LAUNCHES | {"cpu_op", "user_annotation", "python_function"}
# Of the document, of its devices, of events and of their arguments.
KEPT_FIELDS: Final = frozenset(
    {"traceEvents", "deviceProperties", "name", "cat", "pid", "tid", "ts", "dur", "args"}
    | {"correlation", "External id", "Input Dims"}
)
# Of a trace's text. An event has some 500 bytes of it: a million events, in some two gigabytes of memory.
MOST_BYTES: Final = 512 * 2**20
CHUNK_BYTES: Final = 2**20


class TraceError(ValueError):
    """What was given is no trace, or there is nothing in it."""


@dataclass(frozen=True)
class Piece:
    """One kernel's run, or one operator's own time without that of the operators inside it. Microseconds."""

    name: str
    work: Work
    start_us: float
    duration_us: float
    shapes: tuple[tuple[int, ...], ...] = ()
    """The sizes of the operator's tensors; none where a CUDA graph launched the kernel."""
    inner: Work | None = None
    """What the vision encoder's work is made of."""


@dataclass(frozen=True)
class Trace:
    """The work of one process in one stretch of time."""

    device: str
    """Such as ``NVIDIA H100 80GB HBM3``; ``CPU``."""
    on_gpu: bool
    pieces: tuple[Piece, ...]
    span_us: float
    """From the first piece's start to the last one's end; of one stage the time in which its pieces ran or were waited
    for."""
    busy_us: float
    """The part of the span in which at least one piece ran."""
    steps: tuple[tuple[str, int], ...] = ()
    """Mode, as the engine calls it, and batch size of each forward pass that it marked."""

    @property
    def work_us(self) -> float:
        """The sum of all pieces: more than ``busy_us`` where several ran at once."""
        return sum(piece.duration_us for piece in self.pieces)

    @property
    def idle_us(self) -> float:
        """The part of the span in which nothing ran."""
        return max(self.span_us - self.busy_us, 0.0)


def read_events(data: bytes) -> tuple[list[Event], str]:
    """The complete events of a Chrome trace, plain or gzipped, and the device's name.

    Only what is looked at is kept, so that an event takes some 800 bytes of memory, and a frame of Python none. Raises
    TraceError, also for more than MOST_BYTES.
    """
    try:
        document = json.loads(_unpacked(data), object_hook=_slim)
        events = [event for event in document["traceEvents"] if event is not None]
        devices = document.get("deviceProperties") or [{}]
        return events, str(devices[0].get("name") or "GPU")
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"no trace of PyTorch's profiler: {error}") from error


def _unpacked(data: bytes) -> str:
    unpacked = io.BytesIO(data)
    if data[:2] == b"\x1f\x8b":
        unpacked = io.BytesIO()
        with gzip.open(io.BytesIO(data)) as file:
            while unpacked.tell() <= MOST_BYTES and (part := file.read(CHUNK_BYTES)):
                unpacked.write(part)
    if unpacked.getbuffer().nbytes > MOST_BYTES:
        raise TraceError(
            f"it is larger than {MOST_BYTES // 2**20} MiB unpacked, which takes gigabytes to sum up: record fewer steps "
            "(--steps), and without --stack"
        )
    return str(unpacked.getbuffer(), "utf-8")


def _slim(found: dict[str, Any]) -> dict[str, Any] | None:
    """An object of the document with only the fields that are looked at; None for an event that is not."""
    if "ph" in found:
        category, name = found.get("cat"), found.get("name")
        frame = category == "python_function" and not (isinstance(name, str) and _is_vision_frame(name))
        if found["ph"] != "X" or "dur" not in found or category not in KEPT_CATEGORIES or frame:
            return None
        if isinstance(name, str):
            found["name"] = sys.intern(name)
    return {name: value for name, value in found.items() if name in KEPT_FIELDS}


_is_vision_frame: Final = lru_cache(maxsize=4096)(is_vision_frame)


def trace_of(events: Sequence[Event], device: str = "GPU") -> Trace:
    """The trace of these complete events. Raises TraceError where none of them is work."""
    kernels = [event for event in events if event.get("cat") in GPU_CATEGORIES]
    pieces = _kernel_pieces(kernels, events) if kernels else _operator_pieces(events)
    if not pieces:
        raise TraceError("the trace holds no kernel and no operator: nothing ran while it was recorded")
    intervals = [found for event in events if (found := interval_of(event, on_gpu=bool(kernels)))]
    span = max(end for _, end in intervals) - min(start for start, _ in intervals)
    busy = sum(end - start for start, end in merged(intervals))
    return Trace(device if kernels else "CPU", bool(kernels), tuple(pieces), span, busy)


def interval_of(event: Event, *, on_gpu: bool) -> tuple[float, float] | None:
    """Start and end of what the device was busy with; None for anything else.

    On the CPU of an operator with those inside it: own times lie apart within it.
    """
    counts = event.get("cat") in GPU_CATEGORIES if on_gpu else _is_operator(event)
    if not counts:
        return None
    start = float(event["ts"])
    return start, start + float(event["dur"])


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as intervals that do not overlap, in order."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


class _VisionTime:
    """When which thread was inside the vision encoder."""

    def __init__(self, events: Iterable[Event]) -> None:
        frames: dict[tuple[Any, Any], list[tuple[float, float]]] = {}
        for event in events:
            if event.get("cat") in ("python_function", "user_annotation") and is_vision_frame(event["name"]):
                start = float(event["ts"])
                frames.setdefault(_thread(event), []).append((start, start + float(event["dur"])))
        self._frames = {thread: merged(intervals) for thread, intervals in frames.items()}

    def holds(self, event: Event) -> bool:
        """Whether the event began there."""
        frames = self._frames.get(_thread(event))
        if not frames:
            return False
        at = float(event["ts"])
        place = bisect_right(frames, (at, float("inf"))) - 1
        return place >= 0 and frames[place][0] <= at < frames[place][1]


def _thread(event: Event) -> tuple[Any, Any]:
    return event.get("pid"), event.get("tid")


def _kernel_pieces(kernels: Iterable[Event], events: Sequence[Event]) -> list[Piece]:
    """Kernels, each with the operator that launched it and whether that was the vision encoder."""
    launches = {_argument(e, "correlation"): e for e in events if e.get("cat") in LAUNCHES}
    operators = {_argument(e, "External id"): e for e in events if e.get("cat") == "cpu_op"}
    vision = _VisionTime(events)
    found = []
    for kernel in kernels:
        launch = launches.get(_argument(kernel, "correlation"))
        operator = operators.get(_argument(kernel, "External id"))
        work = kernel_work(kernel["name"]) if kernel.get("cat") == "kernel" else Work.COPY
        found.append(_piece(kernel, work, float(kernel["dur"]), launch is not None and vision.holds(launch), operator))
    return found


def _operator_pieces(events: Sequence[Event]) -> list[Piece]:
    """Operators and the engine's marks, each with its own time: its time without that of those right inside it.

    These sum up to the profiler's own ``self_cpu_time_total``.
    """
    vision = _VisionTime(events)
    threads: dict[tuple[Any, Any], list[Event]] = {}
    for event in events:
        if _is_operator(event):
            threads.setdefault(_thread(event), []).append(event)
    found = []
    for thread in threads.values():
        thread.sort(key=lambda e: (float(e["ts"]), -float(e["dur"])))
        open_: list[tuple[Event, float]] = []  # an event with what of its time is its own until now
        for event in thread:
            start = float(event["ts"])
            while open_ and start >= float(open_[-1][0]["ts"]) + float(open_[-1][0]["dur"]):
                found.append(_own(*open_.pop(), vision))
            if open_:
                parent, own = open_[-1]
                open_[-1] = (parent, own - float(event["dur"]))
            open_.append((event, float(event["dur"])))
        found += [_own(event, own, vision) for event, own in reversed(open_)]
    return found


def _is_operator(event: Event) -> bool:
    return event.get("cat") in ("cpu_op", "user_annotation")


def _own(event: Event, own_us: float, vision: _VisionTime) -> Piece:
    work = operator_work(event["name"]) if event["cat"] == "cpu_op" else Work.HOST
    return _piece(event, work, max(own_us, 0.0), vision.holds(event), event)


def _piece(event: Event, work: Work, duration_us: float, in_vision: bool, operator: Event | None) -> Piece:
    shapes = _shapes(operator)
    if in_vision and work is not Work.HOST:
        return Piece(event["name"], Work.VISION, float(event["ts"]), duration_us, shapes, inner=work)
    return Piece(event["name"], work, float(event["ts"]), duration_us, shapes)


def _argument(event: Event, name: str) -> Any:
    return (event.get("args") or {}).get(name)


def _shapes(operator: Event | None) -> tuple[tuple[int, ...], ...]:
    given = _argument(operator, "Input Dims") if operator is not None else None
    found = []
    for dims in given or []:
        if isinstance(dims, list) and dims and all(isinstance(n, int) for n in dims):
            found.append(tuple(dims))
    return tuple(found)
