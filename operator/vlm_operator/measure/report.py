"""A measurement as one HTML page that stands alone: no script, no other file, no address that is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Final

from vlm_operator.measure import plots
from vlm_operator.measure.curve import METHOD, NO_KNEE
from vlm_operator.measure.interval import CONFIDENCE
from vlm_operator.measure.result import Result
from vlm_operator.measure.rounds import PERCENTS
from vlm_operator.measure.twin import word

NO_PLOTS: Final = "Plots are left out, since Matplotlib is not installed: pip install 'vlm-operator[report]'."
_NUMBER: Final = re.compile(r"[-≤ ]*[0-9][0-9,.]*(e-?[0-9]+)?%?( to [0-9,.]+)?|-")
STYLE: Final = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd } h3 { font-size: 1rem }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .8rem .25rem 0; text-align: right; vertical-align: top }
td.text, th.text { text-align: left } th { color: #555; font-weight: 600 }
tbody tr { border-top: 1px solid #eee }
pre { background: #f5f5f5; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; border-radius: 4px }
.verdict { font-weight: 600; font-size: 1.05rem } .bad { color: #b00020 } .note { color: #555 }
svg { width: 100%; max-width: 760px; height: auto; display: block }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """The whole document."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def heading(text: str, level: int = 2) -> str:
    """A section's title."""
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    """A sentence or several."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table. Columns of numbers are set to the right, texts to the left."""
    cells = [[str(cell) for cell in row] for row in rows]
    texts = [
        any(cell.strip() and not _NUMBER.fullmatch(cell) for cell in column) for column in zip(*cells, strict=True)
    ]
    texts = texts or [True] * len(head)

    def line(tag: str, row: Sequence[str]) -> str:
        kinds = [" class=text" if text else "" for text in texts]
        return "<tr>" + "".join(f"<{tag}{k}>{escape(c)}</{tag}>" for k, c in zip(kinds, row, strict=True)) + "</tr>"

    body = "".join(line("td", row) for row in cells)
    return f"<table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table>"


def plot(draw: Callable[..., str], *arguments: object) -> str:
    """What the function of ``plots`` draws, or why there is no plot."""
    return draw(*arguments) if plots.available() else paragraph(NO_PLOTS, "note")


def commands(texts: Iterable[str]) -> str:
    """The commands that made the page."""
    return heading("The commands") + f"<pre>{escape(chr(10).join(dict.fromkeys(texts)))}</pre>"


def bench_report(results: Sequence[Result]) -> str:
    """The page for one measurement, or for several of the same service."""
    parts: list[str] = []
    if len(results) > 1:
        parts += _each(results)
    for result in results:
        parts += _result(result, several=len(results) > 1)
    parts.append(commands(result.command for result in results))
    return page(f"Load on {results[0].service}", parts)


def _result(result: Result, *, several: bool) -> list[str]:
    parts = [heading(" and ".join(result.targets)) if several else ""]
    if said := result.failure():
        parts.append(paragraph(said, "verdict bad"))
    parts += [paragraph(c.sentence() + ".", "verdict") for c in result.comparisons]
    rounds = max((s.rounds for s in result.summaries), default=0)
    parts.append(
        paragraph(
            f"The load: {result.load.sentence()}. {rounds} rounds; each request has images of its own; seeds from {result.seed}."
        )
    )
    if not result.summaries:
        return parts
    parts.append(heading("Throughput", 3))
    rows = []
    for each in result.summaries:
        span = f"{each.slowest_round:.2f} to {each.fastest_round:.2f}"
        rates = f"{each.requests_per_second:.2f}", span, f"{each.tokens_per_second:,.0f}"
        rows.append((result.targets[each.target], each.concurrency, *rates, each.requests, each.failures))
    head = ["", "at once", "requests/s", "slowest to fastest round", "output tokens/s", "requests", "failed"]
    parts += [table(head, rows), plot(plots.curve_plot if result.has_curve else plots.rounds_plot, result)]
    if result.has_curve:
        parts += [
            paragraph(f"{name}: {found.sentence}." if found else f"{name}: {NO_KNEE}.")
            for name, found in zip(result.targets, result.knees, strict=True)
        ]
        parts.append(paragraph(METHOD[0].upper() + METHOD[1:] + ".", "note"))
    parts.append(heading("Milliseconds", 3))
    times = [
        (result.targets[s.target], s.concurrency, *_milliseconds(s.ttft_ms), *_milliseconds(s.tpot_ms))
        for s in result.summaries
    ]
    names = [f"{kind} p{p}" for kind in ("TTFT", "TPOT") for p in PERCENTS]
    parts += [table(["", "at once", *names], times)]
    parts.append(paragraph("TTFT: time to the first token. TPOT: time per token after it. Over all requests.", "note"))
    parts += _ratios(result)
    parts += _engine(result)
    parts += [paragraph(f"Note: {note}.", "note") for note in result.remarks]
    return parts


def _milliseconds(times: Mapping[int, float | None]) -> list[str]:
    found = [times[percent] for percent in PERCENTS]
    return ["-" if value is None else f"{value:,.1f}" for value in found]


def _ratios(result: Result) -> list[str]:
    parts = []
    for comparison in result.comparisons:
        rows = [
            (f"{m.name} at {comparison.concurrency}", i.value, i.low, i.high)
            for m, i in comparison.intervals
            if i is not None
        ]
        if rows:
            title = f"{comparison.first} divided by {comparison.second}, {CONFIDENCE:.0%} intervals"
            parts += [heading(title, 3), plot(plots.ratio_plot, rows, title)]
    if parts:
        parts.append(
            paragraph(
                "Geometric mean over pairs of rounds; of Student's interval and Hesterberg's expanded percentile bootstrap "
                "over pairs the wider end on each side. More is better for requests and tokens, less for times. A winner is "
                "named by requests/s alone.",
                "note",
            )
        )
    return parts


def _engine(result: Result) -> list[str]:
    parts = [heading("What the engine said meanwhile", 3)]
    said = result.said(0)
    rows = [(name, planned, said.get(name, "not told")) for name, planned in result.planned.items()]
    if rows:
        parts.append(table(["setting", "planned", "in use"], [(n, word(p), word(s)) for n, p, s in rows]))
    for index, name in enumerate(result.targets):
        if counted := result.counted(index):
            text = ", ".join(f"{value:,.0f} {what}" for what, value in counted.items())
            parts.append(paragraph(f"{name}: {text}."))
    return parts


def _each(results: Sequence[Result]) -> list[str]:
    rows = [
        (result.change.name, interval.value, interval.low, interval.high)
        for result in results
        for comparison in result.comparisons
        if result.change is not None and (interval := comparison.decisive) is not None
    ]
    if not rows:
        return []
    title = f"requests/s with the setting divided by requests/s without it, {CONFIDENCE:.0%} intervals"
    return [heading("What each setting is worth"), plot(plots.ratio_plot, rows, title)]
