"""A measurement as a report: rates and times, the ratio and how certain it is, the curve, what the engine reported."""

from collections.abc import Sequence
from typing import Final

from vlm_bench.reports import plots
from vlm_bench.reports.page import Cell, Drawing, Heading, Line, Part, Table, Tone, page
from vlm_bench.statistics.comparison import METHOD, NO_KNEE, Comparison
from vlm_bench.statistics.interval import CONFIDENCE, Interval
from vlm_bench.statistics.result import Result
from vlm_bench.statistics.rounds import PERCENTS
from vlm_bench.twins.twin import word

INTERVAL: Final = f"{CONFIDENCE:.0%} interval"
NO_DIFFERENCE: Final = "no difference shown"
RATIO_NOTE: Final = (
    "Geometric mean over pairs of rounds; the interval is the wider of Student's and Hesterberg's expanded percentile bootstrap "
    "on each side. Only requests/s decide who is faster."
)


def bench_page(results: Sequence[Result]) -> str:
    """The page for one measurement, or for several of the same service."""
    verdicts: list[Part] = []
    for result in results:
        failure = result.failure()
        verdicts += [Line(f"{failure}.", "bad")] if failure else []
        verdicts += [_verdict(comparison) for comparison in result.comparisons]
    parts = [*verdicts, *(settings_report(results, ()) if len(results) > 1 else ())]
    for result in results:
        parts += bench_report(result)
    return page(f"Load on {results[0].service}", parts, "\n".join(dict.fromkeys(r.command for r in results)))


def bench_report(result: Result) -> list[Part]:
    """All about one measurement, the verdict near the end, above the prompt of a terminal."""
    rounds = max((s.rounds for s in result.summaries), default=0)
    parts: list[Part] = [
        Heading(f"{result.service}: {' and '.join(result.targets)}", 2),
        Line(f"Load: {result.load.sentence()}; {rounds} rounds, seeds from {result.seed}"),
    ]
    if result.summaries:
        parts += _rates(result)
    if result.has_curve:
        parts += [Heading("Knee")]
        parts += [
            Line(f"{name}: {knee.sentence if knee is not None else NO_KNEE}")
            for name, knee in zip(result.targets, result.knees, strict=True)
        ]
        parts += [Line(METHOD, "note")]
    parts += _engine(result)
    for comparison in result.comparisons:
        parts += _comparison(comparison)
    return [*parts, *(Line(f"Note: {note}", "warning") for note in result.remarks)]


def _rates(result: Result) -> list[Part]:
    most = max((s.requests_per_second for s in result.summaries), default=0.0) or 1.0
    rates: list[tuple[object, ...]] = []
    times: list[tuple[object, ...]] = []
    for each in result.summaries:
        knee = result.knees[each.target]
        at_knee = knee is not None and knee.concurrency == each.concurrency
        first = result.targets[each.target], each.concurrency
        rates.append(
            (
                *first,
                f"{each.requests_per_second:.2f}",
                f"{each.slowest_round:.2f} to {each.fastest_round:.2f}",
                f"{each.tokens_per_second:,.0f}",
                each.requests,
                Cell(str(each.failures), "bad" if each.failures else ""),
                *([Cell("knee" if at_knee else "", share=each.requests_per_second / most)] if result.has_curve else []),
            )
        )
        values = [kind[percent] for kind in (each.ttft_ms, each.tpot_ms) for percent in PERCENTS]
        times.append((*first, *("-" if value is None else f"{value:,.1f}" for value in values)))
    head = ("", "concurrency", "requests/s", "slowest to fastest round", "output tokens/s", "requests", "failed")
    plot = plots.curve_plot if result.has_curve else plots.rounds_plot
    return [
        Heading("Throughput"),
        Table((*head, *([""] if result.has_curve else [])), rates),
        Drawing(lambda: plot(result)),
        Heading("Latency in milliseconds"),
        Table(("", "concurrency", *(f"{kind} p{p}" for kind in ("TTFT", "TPOT") for p in PERCENTS)), times),
        Line("TTFT: time to first token; TPOT: time per output token after the first; over all requests", "note"),
    ]


def _engine(result: Result) -> list[Part]:
    parts: list[Part] = [Heading("Reported by the engine")]
    settings, differing = result.settings(0), result.differing()
    for name, (planned, actual) in differing.items():
        parts.append(Line(f"{name}: planned {word(planned)}, in effect {word(actual)}", "bad"))
    if not settings:
        parts.append(Line(f"{result.targets[0]} reported no settings"))
    elif not differing:
        count = sum(name in settings for name in result.planned)
        parts.append(Line(f"{result.targets[0]} uses all {count} planned settings that it reports"))
    for index, name in enumerate(result.targets):
        counted = ", ".join(f"{value:,.0f} {what}" for what, value in result.counted(index).items())
        parts.append(Line(f"{name}: {counted or 'reported none of the counters'}"))
    return parts


def _verdict(comparison: Comparison) -> Line:
    return Line(f"{comparison.sentence()}.", "good" if comparison.winner else "warning")


def _comparison(comparison: Comparison) -> list[Part]:
    rows: list[tuple[object, ...]] = []
    for measure, interval in comparison.intervals:
        better = tone = ""
        if interval is not None:
            is_better = (interval.value > 1) is measure.more_is_better
            better = "includes 1" if interval.contains_one else "better" if is_better else "worse"
            tone = {"better": "good", "worse": "bad"}.get(better, "")
        rows.append((measure.name, *_ratio(interval), Cell(better, tone)))  # type: ignore[arg-type]
    points = [(m.name, i.value, i.low, i.high) for m, i in comparison.intervals if i is not None]
    title = f"{comparison.first} divided by {comparison.second}, concurrency {comparison.concurrency}"
    parts: list[Part] = [Heading(title), Table(("", "ratio", INTERVAL, ""), rows)]
    if points:
        parts += [Drawing(lambda: plots.ratio_plot(points, f"ratio, {INTERVAL}s")), Line(RATIO_NOTE, "note")]
    return [*parts, _verdict(comparison)]


def _ratio(interval: Interval | None) -> tuple[str, str]:
    return ("-", "-") if interval is None else (f"{interval.value:.3f}", f"{interval.low:.3f} to {interval.high:.3f}")


def settings_report(results: Sequence[Result], passed: Sequence[str]) -> list[Part]:
    """What each setting is worth: the service with it, divided by its twin without it. ``passed``: why others were not
    measured."""
    rows: list[tuple[object, ...]] = []
    points = []
    for result in results:
        for comparison in result.comparisons:
            if (change := result.change) is None:
                continue
            effect, tone = _effect(comparison)
            without = "engine default" if change.measured is None else word(change.measured)
            ratio = _ratio(comparison.decisive)
            rows.append((change.name, word(change.planned), without, *ratio, Cell(effect, tone)))
            if (interval := comparison.decisive) is not None:
                points.append((change.name, interval.value, interval.low, interval.high))
    parts: list[Part] = [
        Heading("Worth of each setting", 2),
        Table(("setting", "value", "without it", "requests/s ratio", INTERVAL, ""), rows),
    ]
    if points:
        title = f"requests/s with the setting divided by requests/s without it, {INTERVAL}s"
        parts.append(Drawing(lambda: plots.ratio_plot(points, title)))
    if len(results) > 1:
        wrong = len(results) * (1 - CONFIDENCE)
        text = f"of {len(results)} such intervals {wrong:.1f} miss the true value by chance; repeat what matters"
        parts.append(Line(text, "note"))
    return [*parts, *(Line(f"not measured: {why}", "note") for why in passed)]


def _effect(comparison: Comparison) -> tuple[str, Tone]:
    if comparison.winner is not None:
        return ("helps", "good") if comparison.winner == comparison.first else ("costs", "bad")
    if comparison.failures:
        return "requests failed", "warning"
    return ("no verdict", "warning") if comparison.withheld else (NO_DIFFERENCE, "")
