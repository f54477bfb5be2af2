"""A profile as one HTML page: where the time of each stage goes, the largest kernels, and the GEMMs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from vlm_operator.measure import plots
from vlm_operator.measure.kernels import Work
from vlm_operator.measure.report import commands, heading, page, paragraph, plot, table
from vlm_operator.measure.timeline import SHOWN, Stage

IDLE: Final = "idle"
NOTE: Final = (
    "The shares are of the time of all kernels; where several ran at once they add up to more than the time that passed. "
    "Idle time counts to the stage whose kernel ends it. "
    "A GEMM counts as limited by bandwidth where it does fewer operations for each byte than the device's arithmetic and "
    "memory allow at their best (the roofline's ridge, dense BF16, by the data sheet); bytes are those that must move once."
)


def profile_report(
    service: str, stages: Sequence[Stage], command: str, notes: Sequence[str], files: Sequence[str]
) -> str:
    """The whole page."""
    parts = [paragraph(f"{stage.name}: {stage.sentence()}.", "verdict") for stage in stages]
    bars = {}
    for stage in stages:
        whole = stage.trace.work_us + stage.trace.idle_us or 1.0
        amounts = {work.value: 100 * time / whole for work, time in stage.by_work().items()}
        bars[stage.name] = {**amounts, IDLE: 100 * stage.trace.idle_us / whole}
    kinds = [*(work.value for work in Work), IDLE]
    parts.append(plot(plots.shares_plot, bars, kinds, "% of the time of all work and of idle time"))
    for stage in stages:
        parts += _stage(stage)
    parts += [paragraph(f"Note: {note}.", "note") for note in notes]
    parts += [paragraph(NOTE, "note"), heading("The traces"), paragraph(f"For ui.perfetto.dev: {', '.join(files)}.")]
    parts.append(commands([command]))
    return page(f"Where the time of {service} goes", parts)


def _stage(stage: Stage) -> list[str]:
    trace = stage.trace
    work_us = trace.work_us or 1.0  # kernels may be shorter than the profiler's clock tells
    rows: list[tuple[object, ...]] = [
        (work.value, f"{time / 1000:,.2f}", f"{time / work_us:.1%}") for work, time in stage.by_work().items()
    ]
    rows.append((IDLE, f"{trace.idle_us / 1000:,.2f}", ""))
    largest = [
        (
            k.name,
            k.work.value,
            shapes(k.shapes),
            k.count,
            f"{k.total_us / 1000:,.2f}",
            f"{k.total_us / work_us:.1%}",
        )
        for k in stage.kernels()
        if k.work is not Work.HOST
    ]
    products = [
        (
            g.name,
            g.shape + (" (vision encoder)" if g.vision else ""),
            g.count,
            f"{g.total_us / 1000:,.2f}",
            number(g.flops_per_byte, "≤ " if g.n is None else ""),
            number(g.teraflops),
            number(g.terabytes),
            {True: "yes", False: "", None: "not known"}[g.limited_by_bandwidth(stage.device)],
        )
        for g in stage.gemms()
    ]
    return [
        heading(f"{stage.name}, on {trace.device}"),
        paragraph(steps_sentence(stage), "note"),
        table(["kind of work", "ms", "of all work"], rows),
        heading("Largest kernels" if trace.on_gpu else "Largest operators", 3),
        table(["kernel", "kind", "shapes", "runs", "ms", "of all work"], largest[:SHOWN]),
        heading("GEMMs", 3),
        table(
            ["kernel", "M×N×K", "runs", "ms", "operations/byte", "TFLOP/s", "TB/s", "limited by bandwidth"],
            products[:SHOWN],
        ),
    ]


def steps_sentence(stage: Stage) -> str:
    """The forward passes in the trace."""
    steps = stage.trace.steps
    if not steps:
        return "The trace marks no step."
    sizes = ", ".join(str(batch) for _, batch in steps[:SHOWN])
    count = f"{len(steps)} step" + ("s" if len(steps) > 1 else "")
    return f"{count}; requests in each: {sizes}{', …' if len(steps) > SHOWN else ''}."


def shapes(found: Sequence[Sequence[int]]) -> str:
    """Sizes of tensors in a line."""
    return " ".join("×".join(map(str, each)) for each in found[:3]) or "-"


def number(value: float | None, before: str = "") -> str:
    """A number with three digits, or that it is not known."""
    return "-" if value is None else f"{before}{value:.3g}"
