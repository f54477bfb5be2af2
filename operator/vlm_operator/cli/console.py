"""The terminal: colours, width, and the pieces that all tables share."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vlm_api.bounds import harmless

# Width of output to files and pipes.
PIPE_WIDTH = 120
# The narrowest column for a sentence, and the widest for a value.
MIN_SENTENCE_WIDTH = 24
MAX_VALUE_WIDTH = 26
INDENT = "  "


class _HarmlessConsole(Console):
    """A terminal on which no text acts: rich's own controls pass, those in a status, a spec or a report are written out."""

    def render_str(self, text: str, **how: Any) -> Text:
        """A string, escaped before it is measured, so that no cell is cut."""
        return super().render_str(harmless(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is written, piece by piece."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(harmless(piece.text), piece.style)


def make_console() -> Console:
    """Standard output. Respects NO_COLOR and TERM=dumb; no colours without a terminal."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return _HarmlessConsole(width=width, markup=False, highlight=False, emoji=False)


def heading(text: str) -> Text:
    """A section's title."""
    return Text(f"\n{text}", style="bold")


def pairs(rows: list[tuple[str, RenderableType]]) -> Table:
    """A grid of names and values."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(INDENT + name, value)
    return grid


def columns(*names: str, last_wraps: bool = True) -> Table:
    """A table without lines. The first column never wraps; the last one takes the remaining width."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, name in enumerate(names):
        first, last = index == 0, index == len(names) - 1
        ratio = 1 if last and last_wraps else None
        table.add_column((INDENT if first else "") + name, overflow="fold", no_wrap=first, ratio=ratio)
    return table


def settings_table(console: Console, names: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    """Rows with a name first and a sentence last: a table, or stacked lines if the terminal is too narrow."""
    if _sentence_room(console, names, rows) >= MIN_SENTENCE_WIDTH:
        table = columns(*names)
        for first, *others in rows:
            table.add_row(INDENT + str(first), *others)
        console.print(table)
        return
    for first, *values, sentence in rows:
        console.print(indented(first))
        labelled = [
            Text.assemble((f"{name.lower()} ", "dim"), value) for name, value in zip(names[1:], values, strict=False)
        ]
        console.print(indented(Text(", ").join(labelled), 2))
        console.print(indented(sentence, 2))


def _sentence_room(console: Console, names: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> int:
    """Width left for the sentence. Long values wrap, names never do."""
    first, *values, _ = [max(cell_len(str(cell)) + 2 for cell in column) for column in zip(names, *rows, strict=True)]
    return console.width - len(INDENT) - first - sum(min(width, MAX_VALUE_WIDTH) for width in values)


def indented(text: str | Text, steps: int = 1) -> Padding:
    """A text with every line indented."""
    return Padding(Text(text) if isinstance(text, str) else text, (0, 0, 0, len(INDENT) * steps), expand=False)


def bar(console: Console, share: float, width: int) -> Text:
    """A bar for a share from 0 to 1."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    full, empty = ("#", ".") if console.options.ascii_only else ("█", "░")
    return Text(full * filled, style="cyan") + Text(empty * (width - filled), style="dim")


def format_value(value: Any) -> str:
    """A setting's value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def format_mib(value: float | None) -> str:
    """MiB with thousands separators, or ``unknown``."""
    return "unknown" if value is None else f"{value:,.0f} MiB"
