"""Where a trace's time goes: by kind of work, by kernel, and in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vlm_operator.measure.gemms import Device, Gemm, device_of, gemms
from vlm_operator.measure.kernels import Work, short
from vlm_operator.measure.trace import Trace

SHOWN = 12


@dataclass(frozen=True)
class Kernel:
    """All runs of one kernel or operator with the same shapes."""

    name: str
    work: Work
    shapes: tuple[tuple[int, ...], ...]
    count: int
    total_us: float


@dataclass(frozen=True)
class Stage:
    """One stage of serving: prefill or decode."""

    name: str
    trace: Trace

    @property
    def device(self) -> Device | None:
        """The device's numbers, where they are known."""
        return device_of(self.trace.device) if self.trace.on_gpu else None

    def by_work(self) -> dict[Work, float]:
        """Kind of work -> microseconds. Their sum is the trace's ``work_us``."""
        found = dict.fromkeys(Work, 0.0)
        for piece in self.trace.pieces:
            found[piece.work] += piece.duration_us
        return {work: time for work, time in found.items() if time}

    def share(self, work: Work) -> float:
        """The part of all work, from 0 to 1, that is of this kind."""
        return self.by_work().get(work, 0.0) / self.trace.work_us if self.trace.work_us else 0.0

    def gemm_share(self) -> float:
        """The part of the kernels' or operators' time that is matrix products, the vision encoder's among them."""
        vision = sum(p.duration_us for p in self.trace.pieces if p.work is Work.VISION and p.inner is Work.GEMM)
        times = self.by_work()
        operators = self.trace.work_us - times.get(Work.HOST, 0.0)
        return (times.get(Work.GEMM, 0.0) + vision) / operators if operators else 0.0

    def kernels(self) -> list[Kernel]:
        """The kernels, those that took longest first."""
        groups: dict[tuple[str, Work, tuple[tuple[int, ...], ...]], tuple[int, float]] = {}
        for piece in self.trace.pieces:
            key = (piece.name, piece.work, piece.shapes)
            count, total = groups.get(key, (0, 0.0))
            groups[key] = (count + 1, total + piece.duration_us)
        found = [Kernel(short(n), w, s, count, total) for (n, w, s), (count, total) in groups.items()]
        return sorted(found, key=lambda kernel: -kernel.total_us)

    def gemms(self) -> list[Gemm]:
        """The matrix products, those that took longest first."""
        return gemms(self.trace)

    def bandwidth_us(self) -> float:
        """Time of matrix products that memory holds up."""
        return sum(g.total_us for g in self.gemms() if g.limited_by_bandwidth(self.device))

    def sentence(self) -> str:
        """What stands out."""
        trace = self.trace
        said = [f"{self.gemm_share():.0%} of the {'kernels' if trace.on_gpu else 'operators'}' time is GEMMs"]
        if trace.span_us:
            said.append(f"nothing ran in {trace.idle_us / trace.span_us:.0%} of {trace.span_us / 1000:,.1f} ms")
        if self.device is not None:
            share = self.bandwidth_us() / trace.work_us if trace.work_us else 0.0
            said.append(
                f"GEMMs that memory bandwidth limits take {share:.0%} "
                f"(below {self.device.ridge:.0f} operations a byte on {self.device.name})"
            )
        elif trace.on_gpu:
            said.append(f"which GEMMs bandwidth limits is not told: the numbers of {trace.device} are not known")
        return "; ".join(said)

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
            "kernels": [
                {"name": k.name, "work": k.work.value, "shapes": k.shapes, "count": k.count, "microseconds": k.total_us}
                for k in self.kernels()[: SHOWN * 4]
            ],
            "gemms": [
                {
                    "name": g.name, "shape": g.shape, "count": g.count, "microseconds": g.total_us,
                    "flopsPerByte": g.flops_per_byte, "teraflops": g.teraflops, "terabytesPerSecond": g.terabytes,
                    "limitedByBandwidth": g.limited_by_bandwidth(self.device), "visionEncoder": g.vision,
                }
                for g in self.gemms()[: SHOWN * 4]
            ],
        }  # fmt: skip
