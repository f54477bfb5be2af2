"""A profile for a person: where a stage's time goes, its largest kernels, and its GEMMs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from vlm_operator.cli.console import INDENT, bar, columns, heading
from vlm_operator.measure.kernels import Work
from vlm_operator.measure.nsight import KernelSum, by_work
from vlm_operator.measure.profile_report import number, shapes, steps_sentence
from vlm_operator.measure.timeline import Stage

BAR_WIDTH: Final = 32
SHOWN: Final = 6


def print_stage(console: Console, service: str, stage: Stage) -> None:
    """Everything about one stage."""
    trace = stage.trace
    console.print(heading(f"{service}, {stage.name}, on {trace.device}"))
    console.print(Text(f"{INDENT}{steps_sentence(stage)}", style="dim"))
    table = columns("KIND OF WORK", "MS", "", last_wraps=False)
    table.columns[1].justify = "right"
    for work, time in stage.by_work().items():
        share = time / trace.work_us if trace.work_us else 0.0
        graph = bar(console, share, BAR_WIDTH) + Text(f" {share:.1%}")
        table.add_row(INDENT + work.value, f"{time / 1000:,.2f}", graph)
    table.add_row(INDENT + "idle", f"{trace.idle_us / 1000:,.2f}", "")
    console.print(table)
    kernels = columns("LARGEST KERNELS" if trace.on_gpu else "LARGEST OPERATORS", "KIND", "SHAPES", "RUNS", "MS")
    for kernel in [k for k in stage.kernels() if k.work is not Work.HOST][:SHOWN]:
        cells = kernel.work.value, shapes(kernel.shapes), str(kernel.count), f"{kernel.total_us / 1000:,.2f}"
        kernels.add_row(INDENT + kernel.name, *cells)
    console.print(kernels)
    products = columns("GEMM", "M×N×K", "RUNS", "MS", "FLOP/BYTE", "TFLOP/S", "TB/S", "LIMITED BY")
    for gemm in stage.gemms()[:SHOWN]:
        limit = {True: "bandwidth", False: "arithmetic", None: "not known"}[gemm.limited_by_bandwidth(stage.device)]
        products.add_row(
            INDENT + gemm.name,
            gemm.shape,
            str(gemm.count),
            f"{gemm.total_us / 1000:,.2f}",
            number(gemm.flops_per_byte, "≤ " if gemm.n is None else ""),
            number(gemm.teraflops),
            number(gemm.terabytes),
            Text(limit, style="bold yellow" if limit == "bandwidth" else ""),
        )
    console.print(products)
    console.print(Text(f"{INDENT}{stage.sentence()}", style="bold"))


def print_kernels(console: Console, service: str, kernels: Sequence[KernelSum]) -> None:
    """What Nsight Systems summed up."""
    whole = sum(kernel.total_us for kernel in kernels)
    console.print(heading(f"{service}, all steps, by Nsight Systems"))
    table = columns("KIND OF WORK", "MS", "", last_wraps=False)
    table.columns[1].justify = "right"
    for work, time in by_work(kernels).items():
        graph = bar(console, time / whole, BAR_WIDTH) + Text(f" {time / whole:.1%}")
        table.add_row(INDENT + work.value, f"{time / 1000:,.2f}", graph)
    console.print(table)
    largest = columns("LARGEST KERNELS", "KIND", "RUNS", "MS")
    for kernel in kernels[:SHOWN]:
        largest.add_row(INDENT + kernel.name, kernel.work.value, str(kernel.count), f"{kernel.total_us / 1000:,.2f}")
    console.print(largest)
