"""Matrix products (GEMMs) in a trace: their shapes, the rate they reached, and which of them memory bandwidth limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Final

from vlm_bench.traces.kernels import Work, short
from vlm_bench.traces.trace import Piece, Trace
from vlm_operator.facts.nodes.products import product

BYTES_PER_NUMBER: Final = 2


def ridge_of(device: str) -> float | None:
    """Operations per byte below which memory bandwidth limits a kernel on that GPU (the roofline's ridge); None if the GPU's
    data sheet is not in the table of products."""
    row = product(device)
    return None if row is None or row.roofline is None else row.roofline[0] / row.roofline[1]


@dataclass(frozen=True)
class Gemm:
    """All runs of one kernel with one shape. ``m`` are rows: the tokens of one step.

    With ``m`` alone, a CUDA graph hides the shape, and ``m`` is the batch size of the steps.
    """

    name: str
    count: int
    total_us: float
    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch: int = 1
    vision: bool = False

    @property
    def flops_per_byte(self) -> float | None:
        """Operations per byte that has to move at least once; with ``m`` alone, the upper bound."""
        if self.m is None or self.n is None or self.k is None:
            return None if self.m is None else float(self.m)
        return 2.0 * self.m * self.n * self.k / self._bytes(self.m, self.n, self.k)

    @property
    def teraflops(self) -> float | None:
        """10^12 operations per second."""
        if self.m is None or self.n is None or self.k is None or not self.total_us:
            return None
        return 2.0 * self.batch * self.m * self.n * self.k * self.count / self.total_us / 1e6

    @property
    def terabytes(self) -> float | None:
        """10^12 bytes per second, if each byte moved once."""
        if self.m is None or self.n is None or self.k is None or not self.total_us:
            return None
        return self.batch * self._bytes(self.m, self.n, self.k) * self.count / self.total_us / 1e6

    @staticmethod
    def _bytes(m: int, n: int, k: int) -> int:
        return BYTES_PER_NUMBER * (m * k + k * n + m * n)

    def is_limited_by_bandwidth(self, ridge: float | None) -> bool | None:
        """Whether memory bandwidth rather than arithmetic limits it on a GPU with that ridge; None if that is unknown."""
        most = self.flops_per_byte
        if ridge is None or most is None:
            return None
        if most < ridge:
            return True
        return False if self.n is not None else None  # with ``m`` alone it may be any smaller number

    @property
    def shape(self) -> str:
        """``M×N×K``, as far as known."""
        if self.m is None:
            return "not in the trace"
        if self.n is None:
            return f"M={self.m} (batch size)"
        return (f"{self.batch} of " if self.batch > 1 else "") + f"{self.m}×{self.n}×{self.k}"

    def to_json(self, ridge: float | None) -> dict[str, Any]:
        """For files."""
        return {
            "name": self.name, "shape": self.shape, "count": self.count, "microseconds": self.total_us,
            "flopsPerByte": self.flops_per_byte, "teraflops": self.teraflops, "terabytesPerSecond": self.terabytes,
            "limitedByBandwidth": self.is_limited_by_bandwidth(ridge), "visionEncoder": self.vision,
        }  # fmt: skip


def gemms(trace: Trace) -> list[Gemm]:
    """The matrix products, longest total time first."""
    only_decode = trace.on_gpu and trace.steps and all(stage == "DECODE" for stage, _ in trace.steps)
    batch = max(size for _, size in trace.steps) if only_decode else None
    groups: dict[tuple[str, tuple[int, int, int, int] | None, bool], list[Piece]] = {}
    for piece in trace.pieces:
        if piece.work is Work.GEMM or piece.inner is Work.GEMM:
            key = piece.name, product_shape(piece.shapes), piece.work is Work.VISION
            groups.setdefault(key, []).append(piece)
    result = []
    for (name, shape, vision), pieces in groups.items():
        b, m, n, k = shape or (1, None if vision else batch, None, None)
        total_us = sum(piece.duration_us for piece in pieces)
        result.append(Gemm(short(name), len(pieces), total_us, m, n, k, b, vision))
    return sorted(result, key=lambda gemm: -gemm.total_us)


def product_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, int, int, int] | None:
    """Batch, M, N, K of the first two neighbouring tensors that fit: ``[.., M, K] @ [K, N]``, ``[.., M, K] @ [N, K].T`` or
    ``[B, M, K] @ [B, K, N]``. A bias before them is skipped."""
    for first, second in pairwise(shapes):
        if len(first) == len(second) == 3 and first[0] == second[0] and first[2] == second[1]:
            return first[0], first[1], second[2], first[2]
        if len(first) >= 2 and len(second) == 2 and first[-1] in second:
            return 1, prod(first[:-1]), second[1] if first[-1] == second[0] else second[0], first[-1]
    return None
