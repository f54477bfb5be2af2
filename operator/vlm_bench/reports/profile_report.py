"""A profile as a report: where the time of each stage goes, the largest kernels, and the GEMMs."""

from collections.abc import Mapping, Sequence
from typing import Final

from vlm_bench.reports import plots
from vlm_bench.reports.page import Cell, Drawing, Heading, Line, Part, Table, page
from vlm_bench.traces.kernels import Work, sum_by_work
from vlm_bench.traces.stages import Kernel, Stage

IDLE: Final = "idle"
SHOWN: Final = 10
NOTE: Final = (
    "Shares are of the time of all kernels; if several ran at once, they add up to more than the time that passed. "
    "Idle time counts to the stage whose kernel ends it. A GEMM counts as limited by bandwidth if it does fewer operations per "
    "byte than the GPU's arithmetic and memory allow at best (the roofline's ridge, dense BF16, from the data sheet); bytes are "
    "those that must move once."
)


def profile_page(
    service: str, stages: Sequence[Stage], command: str, notes: Sequence[str], files: Sequence[str]
) -> str:
    """The whole page."""
    parts: list[Part] = [Line(f"{stage.name}: {stage.sentence()}.", "good") for stage in stages]
    bars = {}
    for stage in stages:
        whole = stage.trace.work_us + stage.trace.idle_us or 1.0
        amounts = {work.value: 100 * time / whole for work, time in stage.by_work().items()}
        bars[stage.name] = {**amounts, IDLE: 100 * stage.trace.idle_us / whole}
    kinds = [*(work.value for work in Work), IDLE]
    parts.append(Drawing(lambda: plots.shares_plot(bars, kinds, "% of the time of all work and of idle time")))
    for stage in stages:
        parts += stage_report(service, stage)
    parts += [Line(f"Note: {note}.", "warning") for note in notes]
    parts += [Line(NOTE, "note"), Line(f"Open in ui.perfetto.dev: {', '.join(files)}")]
    return page(f"Where the time of {service} goes", parts, command)


def stage_report(service: str, stage: Stage) -> list[Part]:
    """All about one stage."""
    trace = stage.trace
    largest = [
        (k.name, k.work.value, _shapes(k.shapes), k.count, _ms(k.total_us), _share(k.total_us, trace.work_us))
        for k in stage.kernels()
        if k.work is not Work.HOST
    ]
    products = [
        (
            g.name,
            g.shape + (" (vision encoder)" if g.vision else ""),
            g.count,
            _ms(g.total_us),
            ("≤ " if g.n is None else "") + _number(g.flops_per_byte) if g.m is not None else "-",
            _number(g.teraflops),
            _number(g.terabytes),
            {True: Cell("bandwidth", "warning"), False: "arithmetic", None: "unknown"}[
                g.is_limited_by_bandwidth(stage.ridge)
            ],
        )
        for g in stage.gemms
    ]
    kind = "kernels" if trace.on_gpu else "operators"
    return [
        Heading(f"{service}, {stage.name}, on {trace.device}", 2),
        Line(_steps(stage), "note"),
        _by_work(stage.by_work(), trace.idle_us),
        Heading(f"Largest {kind}"),
        Table((kind[:-1], "kind", "shapes", "runs", "ms", "share"), [*largest[:SHOWN]]),
        Heading("GEMMs"),
        Table(("kernel", "M×N×K", "runs", "ms", "FLOP/byte", "TFLOP/s", "TB/s", "limited by"), [*products[:SHOWN]]),
        Line(stage.sentence(), "good"),
    ]


def kernels_report(service: str, kernels: Sequence[Kernel]) -> list[Part]:
    """The summary of Nsight Systems."""
    rows = [(kernel.name, kernel.work.value, kernel.count, _ms(kernel.total_us)) for kernel in kernels[:SHOWN]]
    return [
        Heading(f"{service}, all steps, by Nsight Systems", 2),
        _by_work(sum_by_work((kernel.work, kernel.total_us) for kernel in kernels)),
        Heading("Largest kernels"),
        Table(("kernel", "kind", "runs", "ms"), [*rows]),
    ]


def _by_work(times: Mapping[Work, float], idle_us: float | None = None) -> Table:
    whole = sum(times.values())
    rows: list[tuple[object, ...]] = [
        (work.value, _ms(time), Cell(_share(time, whole), share=time / whole if whole else 0.0))
        for work, time in times.items()
    ]
    return Table(("kind of work", "ms", "share"), rows if idle_us is None else [*rows, (IDLE, _ms(idle_us), "")])


def _steps(stage: Stage) -> str:
    steps = stage.trace.steps
    if not steps:
        return "The trace marks no steps."
    sizes = ", ".join(str(batch) for _, batch in steps[:SHOWN])
    return f"{len(steps)} steps; requests in each: {sizes}{', …' if len(steps) > SHOWN else ''}."


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    return " ".join("×".join(map(str, each)) for each in shapes[:3]) or "-"


def _ms(us: float) -> str:
    return f"{us / 1000:,.2f}"


def _share(us: float, whole_us: float) -> str:
    # Kernels may be shorter than the profiler's clock resolves.
    return f"{us / (whole_us or 1.0):.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
