"""The terminal: colours where they are wanted, a width that fits, and small pieces that all tables share."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

# Width for files and pipes, where there is no terminal to ask.
PIPE_WIDTH = 120
# The narrowest column in which a sentence can be read, and the widest that a value takes of a table.
LEAST_SENTENCE = 24
WIDEST_VALUE = 26
INDENT = "  "


def make_console() -> Console:
    """Standard output. NO_COLOR and TERM=dumb are respected; without a terminal there are no colours."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)


def heading(text: str) -> Text:
    """A section's title."""
    return Text(f"\n{text}", style="bold")


def pairs(rows: list[tuple[str, RenderableType]]) -> Table:
    """Names and values below one another."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(INDENT + name, value)
    return grid


def columns(*names: str, last_wraps: bool = True) -> Table:
    """A table without lines, so that it can be cut and searched.

    The first column is never broken; the last one takes what is left of the width.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for index, name in enumerate(names):
        first, last = index == 0, index == len(names) - 1
        ratio = 1 if last and last_wraps else None
        table.add_column((INDENT if first else "") + name, overflow="fold", no_wrap=first, ratio=ratio)
    return table


def settings_table(console: Console, names: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    """Rows with a name first and a sentence last: a table; below one another where the sentences would get no room."""
    if _sentence_room(console, names, rows) >= LEAST_SENTENCE:
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
    """Columns of the terminal that names and values leave; long values are folded, names never."""
    first, *values, _ = [max(cell_len(str(cell)) + 2 for cell in column) for column in zip(names, *rows, strict=True)]
    return console.width - len(INDENT) - first - sum(min(width, WIDEST_VALUE) for width in values)


def indented(text: str | Text, steps: int = 1) -> Padding:
    """A text of any length, all of its lines that far in."""
    return Padding(Text(text) if isinstance(text, str) else text, (0, 0, 0, len(INDENT) * steps), expand=False)


def bar(console: Console, share: float, width: int) -> Text:
    """A bar for a share from 0 to 1."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    full, empty = ("#", ".") if console.options.ascii_only else ("█", "░")
    return Text(full * filled, style="cyan") + Text(empty * (width - filled), style="dim")


def shown(value: Any) -> str:
    """A setting's value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def mib(value: float | None) -> str:
    """MiB with separators, or that nobody knows."""
    return "unknown" if value is None else f"{value:,.0f} MiB"
