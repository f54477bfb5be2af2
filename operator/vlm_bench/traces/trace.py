"""A trace of PyTorch's profiler -> pieces of work that add up: the GPU's kernels, or the CPU's operators without a GPU."""

import json
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from vlm_bench.traces.kernels import Work, is_vision_frame, kernel_work, operator_work

Event = Mapping[str, Any]

GPU_CATEGORIES: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCHES: Final = frozenset({"cuda_runtime", "cuda_driver"})
KEPT_CATEGORIES: Final = GPU_CATEGORIES | LAUNCHES | {"cpu_op", "user_annotation", "python_function"}
# Fields of the document, its devices, events and their arguments.
KEPT_FIELDS: Final = frozenset(
    {"traceEvents", "deviceProperties", "name", "cat", "pid", "tid", "ts", "dur", "args"}
    | {"correlation", "External id", "Input Dims"}
)
# A trace's text. An event takes some 500 bytes of it, so this is a million events, in some two gigabytes of memory.
MOST_BYTES: Final = 512 * 2**20


class TraceError(ValueError):
    """Not a trace, or an empty one."""


@dataclass(frozen=True)
class Piece:
    """One run of a kernel, or an operator's own time without that of the operators inside it. Microseconds."""

    name: str
    work: Work
    start_us: float
    duration_us: float
    shapes: tuple[tuple[int, ...], ...] = ()
    """Sizes of the operator's tensors; empty if a CUDA graph launched the kernel."""
    inner: Work | None = None
    """For work of the vision encoder: its kind."""


@dataclass(frozen=True)
class Trace:
    """The work of one process in one stretch of time."""

    device: str
    """Such as ``NVIDIA H100 80GB HBM3``; ``CPU``."""
    on_gpu: bool
    pieces: tuple[Piece, ...]
    span_us: float
    """From the first piece's start to the last one's end; for one stage, the time in which its pieces ran or were awaited."""
    busy_us: float
    """The part of the span in which at least one piece ran."""
    steps: tuple[tuple[str, int], ...] = ()
    """The engine's name of the mode and the batch size, for each forward pass that it marked."""

    @property
    def work_us(self) -> float:
        """The sum of all pieces: more than ``busy_us`` if several ran at once."""
        return sum(piece.duration_us for piece in self.pieces)

    @property
    def idle_us(self) -> float:
        """The part of the span in which nothing ran."""
        return max(self.span_us - self.busy_us, 0.0)


def read_events(data: bytes) -> tuple[list[Event], str]:
    """The complete events of a Chrome trace, plain or gzipped, and the device's name.

    Only the fields used here are kept, so that an event takes some 800 bytes of memory, and a Python frame none. Raises
    TraceError, also for more than MOST_BYTES.
    """
    try:
        document = json.loads(_unpacked(data), object_hook=_slim)
        events = [event for event in document["traceEvents"] if event is not None]
        devices = document.get("deviceProperties") or [{}]
        return events, str(devices[0].get("name") or "GPU")
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"it is not a trace of PyTorch's profiler: {error}") from error


def _unpacked(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        data = zlib.decompressobj(wbits=31).decompress(data, MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TraceError(
            f"it is larger than {MOST_BYTES // 2**20} MiB unpacked, too large to summarize: record fewer steps (--steps), and "
            "without --stack"
        )
    return data


def _slim(found: dict[str, Any]) -> dict[str, Any] | None:
    """An object of the document with only the fields in use; None for an event that is not in use."""
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
    """The trace of these complete events. Raises TraceError if none of them is work."""
    kernels = [event for event in events if event.get("cat") in GPU_CATEGORIES]
    pieces = _kernel_pieces(kernels, events) if kernels else _operator_pieces(events)
    if not pieces:
        raise TraceError("the trace holds no kernel and no operator: nothing ran while it was recorded")
    intervals = [each for event in events if (each := interval_of(event, on_gpu=bool(kernels)))]
    span = max(end for _, end in intervals) - min(start for start, _ in intervals)
    busy = sum(end - start for start, end in merged(intervals))
    return Trace(device if kernels else "CPU", bool(kernels), tuple(pieces), span, busy)


def interval_of(event: Event, *, on_gpu: bool) -> tuple[float, float] | None:
    """Start and end of work on the device; None for any other event. On the CPU, an operator includes those inside it."""
    counts = event.get("cat") in GPU_CATEGORIES if on_gpu else _is_operator(event)
    if not counts:
        return None
    start = float(event["ts"])
    return start, start + float(event["dur"])


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as intervals that do not overlap, in order."""
    result: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


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
    launches = {argument(e, "correlation"): e for e in events if e.get("cat") in LAUNCHES}
    operators = {argument(e, "External id"): e for e in events if e.get("cat") == "cpu_op"}
    vision = _VisionTime(events)
    pieces = []
    for kernel in kernels:
        launch = launches.get(argument(kernel, "correlation"))
        operator = operators.get(argument(kernel, "External id"))
        work = kernel_work(kernel["name"]) if kernel.get("cat") == "kernel" else Work.COPY
        in_vision = launch is not None and vision.holds(launch)
        pieces.append(_piece(kernel, work, float(kernel["dur"]), in_vision, operator))
    return pieces


def _operator_pieces(events: Sequence[Event]) -> list[Piece]:
    """Operators and the engine's marks, each with its own time: without that of those directly inside it.

    They sum up to the profiler's own ``self_cpu_time_total``.
    """
    vision = _VisionTime(events)
    threads: dict[tuple[Any, Any], list[Event]] = {}
    for event in events:
        if _is_operator(event):
            threads.setdefault(_thread(event), []).append(event)
    pieces = []
    for thread in threads.values():
        thread.sort(key=lambda e: (float(e["ts"]), -float(e["dur"])))
        open_: list[tuple[Event, float]] = []  # an event with its own time so far
        for event in thread:
            start = float(event["ts"])
            while open_ and start >= float(open_[-1][0]["ts"]) + float(open_[-1][0]["dur"]):
                pieces.append(_own(*open_.pop(), vision))
            if open_:
                parent, own = open_[-1]
                open_[-1] = (parent, own - float(event["dur"]))
            open_.append((event, float(event["dur"])))
        pieces += [_own(event, own, vision) for event, own in reversed(open_)]
    return pieces


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


def argument(event: Event, name: str) -> Any:
    """An argument of the event; None without it."""
    return (event.get("args") or {}).get(name)


def _shapes(operator: Event | None) -> tuple[tuple[int, ...], ...]:
    given = argument(operator, "Input Dims") if operator is not None else None
    return tuple(
        tuple(dims) for dims in given or [] if isinstance(dims, list) and dims and all(isinstance(n, int) for n in dims)
    )
