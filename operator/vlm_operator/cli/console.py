"""The terminal: colours where they are wanted, a width that fits, and small pieces that all tables share."""

from __future__ import annotations

import os
import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# Width for files and pipes, where there is no terminal to ask.
PIPE_WIDTH = 120
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
