"""A measurement for a person: rates and times, the ratio and how sure it is, the curve, what the engine said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from vlm_operator.cli.console import INDENT, bar, columns, heading, pairs, shown
from vlm_operator.measure.compare import Comparison
from vlm_operator.measure.curve import METHOD, NO_KNEE
from vlm_operator.measure.interval import CONFIDENCE
from vlm_operator.measure.result import Result
from vlm_operator.measure.rounds import PERCENTS, Summary

BAR_WIDTH: Final = 24


def print_result(console: Console, result: Result) -> None:
    """Everything about one measurement, the verdict last, where the eye is when the prompt comes back."""
    console.print(Text(f"{result.service}: {' and '.join(result.targets)}", style="bold"))
    rounds = max((s.rounds for s in result.summaries), default=0)
    console.print(pairs([("Load", result.load.sentence()), ("Rounds", f"{rounds}, seeds from {result.seed}")]))
    if result.summaries:
        _print_rates(console, result)
        _print_times(console, result)
    if result.has_curve:
        _print_curve(console, result)
    _print_engine(console, result)
    for comparison in result.comparisons:
        _print_comparison(console, comparison)
    for note in result.remarks:
        console.print(Text(f"{INDENT}note: {note}", style="yellow"))


def _label(result: Result, summary: Summary) -> str:
    at = f" at {summary.concurrency}" if result.has_curve else ""
    return result.targets[summary.target] + at


def _print_rates(console: Console, result: Result) -> None:
    console.print(heading("Throughput"))
    table = columns(
        "", "REQUESTS/S", "SLOWEST TO FASTEST ROUND", "OUTPUT TOKENS/S", "REQUESTS", "FAILED", last_wraps=False
    )
    _right(table, 1)
    for each in result.summaries:
        failed = Text(str(each.failures), style="bold red" if each.failures else "")
        span = f"{each.slowest_round:.2f} to {each.fastest_round:.2f}"
        rates = f"{each.requests_per_second:.2f}", span, f"{each.tokens_per_second:,.0f}"
        table.add_row(INDENT + _label(result, each), *rates, str(each.requests), failed)
    console.print(table)


def _print_times(console: Console, result: Result) -> None:
    console.print(heading("Milliseconds"))
    names = [f"{kind} p{percent}" for kind in ("TTFT", "TPOT") for percent in PERCENTS]
    table = columns("", *names, last_wraps=False)
    _right(table, 1)
    for each in result.summaries:
        values = [times[p] for times in (each.ttft_ms, each.tpot_ms) for p in PERCENTS]
        table.add_row(INDENT + _label(result, each), *("-" if v is None else f"{v:,.1f}" for v in values))
    console.print(table)
    console.print(Text(f"{INDENT}TTFT: time to the first token; TPOT: time per token after it", style="dim"))


def _right(table: object, first: int) -> None:
    for column in table.columns[first:]:  # type: ignore[attr-defined]
        column.justify = "right"


def _print_curve(console: Console, result: Result) -> None:
    console.print(heading("Requests/s over requests at once"))
    most = max((s.requests_per_second for s in result.summaries), default=0.0) or 1.0
    for index, name in enumerate(result.targets):
        table = columns(name, "", "", last_wraps=False)
        found = result.knees[index]
        for each in (s for s in result.summaries if s.target == index):
            mark = "  knee" if found is not None and found.concurrency == each.concurrency else ""
            graph = bar(console, each.requests_per_second / most, BAR_WIDTH)
            rate = Text(f"{each.requests_per_second:.2f}") + Text(mark, style="bold")
            table.add_row(f"{INDENT}{each.concurrency}", graph, rate)
        console.print(table)
        if found is not None:
            console.print(f"{INDENT}{found.sentence}")
        else:
            console.print(f"{INDENT}{NO_KNEE}")
    console.print(Text(f"{INDENT}{METHOD}", style="dim"))


def _print_engine(console: Console, result: Result) -> None:
    console.print(heading("What the engine said meanwhile"))
    if result.said(0):
        differs = result.differs()
        for name, (planned, told) in differs.items():
            console.print(Text(f"{INDENT}{name}: planned {shown(planned)}, in use {shown(told)}", style="bold red"))
        told_of = [name for name in result.planned if name in result.said(0)]
        if not differs:
            console.print(f"{INDENT}{result.targets[0]} uses all {len(told_of)} planned settings that it tells")
    else:
        console.print(f"{INDENT}{result.targets[0]} told no settings")
    for index, name in enumerate(result.targets):
        if counted := result.counted(index):
            text = ", ".join(f"{value:,.0f} {what}" for what, value in counted.items())
            console.print(f"{INDENT}{name}: {text}")
        else:
            console.print(f"{INDENT}{name}: it tells none of the counters that are asked for")


def _print_comparison(console: Console, comparison: Comparison) -> None:
    console.print(heading(f"{comparison.first} to {comparison.second}, {comparison.concurrency} at once"))
    table = columns("", "RATIO", f"{CONFIDENCE:.0%} INTERVAL", "", last_wraps=False)
    for measure, interval in comparison.intervals:
        if interval is None:
            table.add_row(INDENT + measure.name, "-", "-", "")
            continue
        better = "" if interval.holds_one else "better" if (interval.value > 1) is measure.more_is_better else "worse"
        span = f"{interval.low:.3f} to {interval.high:.3f}"
        style = {"better": "green", "worse": "red"}.get(better, "")
        table.add_row(INDENT + measure.name, f"{interval.value:.3f}", span, Text(better or "holds 1", style=style))
    console.print(table)
    style = "bold green" if comparison.winner else "bold yellow"
    for line in Text(comparison.sentence(), style=style).wrap(console, max(console.width - 2, 20)):
        console.print(Text(INDENT) + line)


def print_each(console: Console, results: Sequence[Result], passed: Sequence[str]) -> None:
    """What each setting is worth: the service with it, divided by its twin without it."""
    console.print(heading("What each setting is worth"))
    table = columns("SETTING", "VALUE", "WITHOUT IT", "REQUESTS/S", f"{CONFIDENCE:.0%} INTERVAL", "", last_wraps=False)
    for result in results:
        assert result.change is not None
        change = result.change
        for comparison in result.comparisons:
            found = comparison.decisive
            ratio = ("-", "-") if found is None else (f"×{found.value:.3f}", f"{found.low:.3f} to {found.high:.3f}")
            said = "no difference is shown"
            if comparison.winner == comparison.first:
                said = "it helps"
            elif comparison.winner is not None:
                said = "it costs"
            elif comparison.failures:
                said = "requests failed"
            elif comparison.withheld:
                said = "no verdict"
            without = "the engine's own" if change.measured is None else shown(change.measured)
            table.add_row(INDENT + change.name, shown(change.planned), without, *ratio, said)
    console.print(table)
    if len(results) > 1:
        wrong = len(results) * (1 - CONFIDENCE)
        console.print(
            Text(
                f"{INDENT}of {len(results)} such intervals {wrong:.1f} miss by chance; measure again what matters",
                style="dim",
            )
        )
    for why in passed:
        console.print(Text(f"{INDENT}not measured: {why}", style="dim"))
