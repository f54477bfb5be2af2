"""Plots as SVG texts, for pages that stand alone. Matplotlib takes a second to load, so it is loaded with the first plot."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from vlm_bench.statistics.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#F0E442")
IDLE_COLOUR: Final = "#e0e0e0"
STYLE: Final[Any] = {
    "svg.fonttype": "none",
    # Names of servers and values of settings stand on axes as they are: a dollar sign begins no formula.
    "text.parse_math": False,
    "svg.hashsalt": "vlm-operator",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "figure.constrained_layout.use": True,
}
WIDTH_INCHES: Final = 7.6
# Ratios further apart than this are drawn on a logarithmic axis.
LINEAR_SPAN: Final = 3.0


@contextmanager
def _figure(height: float, panels: int = 1) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(dict(STYLE)):
        figure = Figure(figsize=(WIDTH_INCHES, height))
        yield figure, figure.subplots(1, panels, squeeze=False)[0]


def _svg(figure: Figure) -> str:
    """The SVG element alone, the same for the same data."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # It fills its place on the page instead of a number of points.
    return re.sub(
        r'(<svg [^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1), count=1
    )


def rounds_plot(result: Result) -> str:
    """Requests a second of each round, in the order in which they were measured."""
    from matplotlib.ticker import MaxNLocator

    with _figure(2.8) as (figure, (axes,)):
        for index, name in enumerate(result.targets):
            found = [r for r in result.rounds if r.counted and r.target == index]
            colour = COLOURS[index % len(COLOURS)]
            axes.plot([r.number for r in found], [r.requests_per_second for r in found], "o", color=colour, label=name)
            if found and not result.has_curve:
                mean = sum(r.requests_per_second for r in found) / len(found)
                axes.axhline(mean, color=colour, linewidth=1, alpha=0.5)
        axes.set_ylim(0, 1.15 * max((r.requests_per_second for r in result.rounds if r.counted), default=1.0) or 1.0)
        axes.set_xlabel("runs in their order")
        axes.set_ylabel("requests/s")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
        return _svg(figure)


def curve_plot(result: Result) -> str:
    """Requests a second, and the median time to the first token, over requests at once."""
    with _figure(3.4, panels=2) as (figure, (rate, wait)):
        for index, name in enumerate(result.targets):
            points = [s for s in result.summaries if s.target == index]
            colour = COLOURS[index % len(COLOURS)]
            levels = [p.concurrency for p in points]
            rate.plot(levels, [p.requests_per_second for p in points], "o-", color=colour, label=name)
            wait.plot(levels, [p.ttft_ms[50] or 0 for p in points], "o-", color=colour, label=f"{name}, p50")
            wait.plot(levels, [p.ttft_ms[99] or 0 for p in points], "o:", color=colour, label=f"{name}, p99")
            found = result.knees[index]
            if found is not None:
                at = next(p for p in points if p.concurrency == found.concurrency)
                rate.axvline(found.concurrency, color=colour, linestyle="--", linewidth=1)
                place = (found.concurrency, at.requests_per_second)
                rate.annotate("knee", place, textcoords="offset points", xytext=(6, -14), color=colour)
        for axes, title in ((rate, "requests/s"), (wait, "time to the first token, ms")):
            axes.set_xscale("log")
            axes.set_xticks(list(result.load.concurrency), [str(n) for n in result.load.concurrency])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.set_xlabel("requests at once")
            axes.set_title(title, fontsize=10, loc="left")
            axes.legend(frameon=False, fontsize=8)
        return _svg(figure)


def ratio_plot(rows: Sequence[tuple[str, float, float, float]], title: str) -> str:
    """Ratios with their intervals: label, ratio, low, high. The line at 1 is no difference."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    with _figure(0.9 + 0.38 * len(rows)) as (figure, (axes,)):
        for place, (_, value, low, high) in enumerate(reversed(rows)):
            colour = "#777777" if low <= 1 <= high else COLOURS[0]
            axes.plot([low, high], [place, place], color=colour, linewidth=2)
            axes.plot([value], [place], "o", color=colour)
            axes.annotate(
                f"{value:.3f}", (value, place), textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8
            )
        axes.axvline(1, color="black", linewidth=1)
        ends = [1.0, *(low for _, _, low, _ in rows), *(high for *_, high in rows)]
        if min(ends) > 0 and max(ends) / min(ends) > LINEAR_SPAN:
            # Half as fast is as far from 1 as twice as fast.
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.minorticks_off()
        axes.set_yticks(range(len(rows)), [label for label, *_ in reversed(rows)])
        axes.set_ylim(-0.6, len(rows) - 0.2)
        axes.set_xlabel(title)
        axes.grid(axis="y", visible=False)
        return _svg(figure)


def shares_plot(bars: Mapping[str, Mapping[str, float]], parts: Sequence[str], unit: str) -> str:
    """Stacked bars: bar -> part -> amount. Parts stand in the order of ``parts``, with one colour in all bars."""
    parts = [part for part in parts if any(part in amounts for amounts in bars.values())]
    with _figure(1.0 + 0.55 * len(bars)) as (figure, (axes,)):
        names = list(bars)
        left = [0.0] * len(names)
        for number, part in enumerate(parts):
            amounts = [bars[name].get(part, 0.0) for name in names]
            axes.barh(
                names,
                amounts,
                left=left,
                color=IDLE_COLOUR if part == "idle" else COLOURS[number % len(COLOURS)],
                label=part,
            )
            left = [a + b for a, b in zip(left, amounts, strict=True)]
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.grid(axis="y", visible=False)
        axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        return _svg(figure)
