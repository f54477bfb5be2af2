"""Matrix products of a trace: their shapes, how fast they ran, and which of them memory holds up rather than arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from vlm_operator.measure.kernels import Work, short
from vlm_operator.measure.trace import Piece, Trace

BYTES_PER_NUMBER: Final = 2


@dataclass(frozen=True)
class Device:
    """What a GPU can do at most, by its data sheet."""

    name: str
    teraflops: float
    """Dense BF16, in 10^12 a second."""
    terabytes: float
    """Memory bandwidth, in 10^12 bytes a second."""

    @property
    def ridge(self) -> float:
        """Operations for each byte of memory, below which memory is what holds a kernel up (the roofline's ridge)."""
        return self.teraflops / self.terabytes


# Words of the device's name -> NVIDIA's data sheets: dense BF16 (half of the figure "with sparsity") and bandwidth. The
# row with the most words wins.
DEVICES: Final = (
    (("h100",), Device("H100 SXM", 989.0, 3.35)),
    (("h100", "pcie"), Device("H100 PCIe", 756.0, 2.0)),
    (("h100", "nvl"), Device("H100 NVL", 835.0, 3.9)),
    (("h800",), Device("H800 SXM", 989.0, 3.35)),
    (("h200",), Device("H200 SXM", 989.0, 4.8)),
    (("h200", "nvl"), Device("H200 NVL", 835.0, 4.8)),
    (("h20",), Device("H20", 148.0, 4.0)),
    (("gh200",), Device("GH200", 990.0, 4.0)),
    (("a100",), Device("A100 80GB SXM", 312.0, 2.039)),
    (("a100", "pcie"), Device("A100 80GB PCIe", 312.0, 1.935)),
    (("a100", "40gb"), Device("A100 40GB", 312.0, 1.555)),
    (("a100", "pcie", "40gb"), Device("A100 40GB", 312.0, 1.555)),
    (("l40s",), Device("L40S", 362.0, 0.864)),
    (("b200",), Device("B200", 2250.0, 8.0)),
)


def device_of(name: str) -> Device | None:
    """The numbers of a device that is named like that; None for one that is not known."""
    words = set(name.lower().replace("-", " ").split())
    fitting = [(len(needed), device) for needed, device in DEVICES if words.issuperset(needed)]
    return max(fitting, key=lambda found: found[0])[1] if fitting else None


@dataclass(frozen=True)
class Gemm:
    """All runs of one kernel with one shape. ``m`` are rows: the tokens that are worked on together."""

    name: str
    count: int
    total_us: float
    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch: int = 1
    vision: bool = False
    from_batch_size: bool = False
    """True: the shape is not in the trace (a CUDA graph ran it), and ``m`` is the step's batch size."""

    @property
    def flops_per_byte(self) -> float | None:
        """Operations for each byte that has to move at least once; with ``m`` alone, what it cannot exceed."""
        if self.m is None:
            return None
        if self.n is None or self.k is None:
            return float(self.m)
        m, n, k = self.m, self.n, self.k
        return 2.0 * m * n * k / (BYTES_PER_NUMBER * (m * k + k * n + m * n))

    @property
    def teraflops(self) -> float | None:
        """What was reached."""
        if self.m is None or self.n is None or self.k is None or not self.total_us:
            return None
        return 2.0 * self.batch * self.m * self.n * self.k * self.count / self.total_us / 1e6

    @property
    def terabytes(self) -> float | None:
        """Bytes a second that were at least moved, in 10^12."""
        if self.m is None or self.n is None or self.k is None or not self.total_us:
            return None
        moved = BYTES_PER_NUMBER * (self.m * self.k + self.k * self.n + self.m * self.n)
        return self.batch * moved * self.count / self.total_us / 1e6

    def limited_by_bandwidth(self, device: Device | None) -> bool | None:
        """Whether the device's memory, not its arithmetic, sets how fast this can run; None where that is not known."""
        most = self.flops_per_byte
        if device is None or most is None:
            return None
        if most < device.ridge:
            return True
        # With the rows alone it may be any number below.
        return None if self.n is None or self.k is None else False

    @property
    def shape(self) -> str:
        """``M×N×K``, as far as it is known."""
        if self.m is None:
            return "not in the trace"
        if self.n is None or self.k is None:
            return f"M={self.m} (batch size)"
        return (f"{self.batch} of " if self.batch > 1 else "") + f"{self.m}×{self.n}×{self.k}"


def gemms(trace: Trace) -> list[Gemm]:
    """The matrix products, those that took longest first."""
    batch = decode_batch(trace)
    groups: dict[tuple[str, tuple[int, int, int, int] | None, bool], list[Piece]] = {}
    for piece in trace.pieces:
        vision = piece.work is Work.VISION
        if piece.work is Work.GEMM or (vision and piece.inner is Work.GEMM):
            groups.setdefault((piece.name, product_shape(piece.shapes), vision), []).append(piece)
    found = []
    for (name, shape, vision), pieces in groups.items():
        total = sum(piece.duration_us for piece in pieces)
        plain = Gemm(short(name), len(pieces), total, vision=vision)
        if shape is not None:
            b, m, n, k = shape
            plain = Gemm(plain.name, plain.count, total, m, n, k, b, vision)
        elif batch is not None and trace.on_gpu and not vision:
            plain = Gemm(plain.name, plain.count, total, m=batch, from_batch_size=True)
        found.append(plain)
    return sorted(found, key=lambda gemm: -gemm.total_us)


def decode_batch(trace: Trace) -> int | None:
    """The largest batch of the decode steps; None where the trace holds others, or marks none."""
    if not trace.steps or any(stage != "DECODE" for stage, _ in trace.steps):
        return None
    return max(batch for _, batch in trace.steps)


def product_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, int, int, int] | None:
    """Batch, M, N, K of a product of the first two tensors that fit: ``[.., M, K] @ [K, N]``, ``[.., M, K] @ [N, K].T``
    or ``[B, M, K] @ [B, K, N]``. A bias before them is passed over."""
    for first, second in pairwise(shapes):
        if len(first) == 3 and len(second) == 3 and first[0] == second[0] and first[2] == second[1]:
            return first[0], first[1], second[2], first[2]
        if len(first) >= 2 and len(second) == 2:
            rows = 1
            for size in first[:-1]:
                rows *= size
            if first[-1] == second[0]:
                return 1, rows, second[1], first[-1]
            if first[-1] == second[1]:
                return 1, rows, second[0], first[-1]
    return None
