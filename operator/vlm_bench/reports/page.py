"""What a report is made of, for the terminal and for a page, and the page: HTML without scripts or other files."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

Tone = Literal["", "good", "bad", "warning", "note"]


@dataclass(frozen=True)
class Heading:
    """A section's title; level 2 or 3."""

    text: str
    level: int = 3


@dataclass(frozen=True)
class Line:
    """A sentence or several."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than its text. ``share``: from 0 to 1, drawn as a bar in a terminal."""

    text: str
    tone: Tone = ""
    share: float | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """Rows of texts, numbers and Cells."""

    head: tuple[str, ...]
    rows: list[tuple[object, ...]]

    def is_number(self) -> list[bool]:
        """For each column, whether all its cells are numbers, which are aligned to the right."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.head)
        return [all(_NUMBER.fullmatch(str(cell)) for cell in column) and any(map(str, column)) for column in columns]


@dataclass(frozen=True)
class Drawing:
    """A part of the page alone, such as a plot."""

    html: Callable[[], str]


Part = Heading | Line | Table | Drawing

_NUMBER: Final = re.compile(r"[-≤ ]*[0-9][0-9,.]*(e-?[0-9]+)?%?( to [0-9,.]+)?|-|")
STYLE: Final = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd } h3 { font-size: 1rem }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top }
.number { text-align: right } th { color: #555; font-weight: 600 }
tbody tr { border-top: 1px solid #eee }
pre { background: #f5f5f5; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; border-radius: 4px }
.good, .bad, .warning { font-weight: 600 } .bad { color: #b00020 } .warning { color: #8a5a00 } .good { color: #00694a }
.note { color: #555 }
svg { width: 100%; max-width: 760px; height: auto; display: block }
"""


def page(title: str, parts: Iterable[Part], command: str) -> str:
    """The whole document, with the command that made it at the end."""
    body = "\n".join(_html(part) for part in parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{body}\n<h2>Command</h2><pre>{escape(command)}</pre>\n</body></html>\n"
    )


def _html(part: Part) -> str:
    if isinstance(part, Heading):
        return f"<h{part.level}>{escape(part.text)}</h{part.level}>"
    if isinstance(part, Line):
        return f"<p{_class(part.tone)}>{escape(part.text)}</p>"
    if isinstance(part, Drawing):
        return part.html()
    numbers = ["number" if number else "" for number in part.is_number()]

    def line(tag: str, row: tuple[object, ...]) -> str:
        cells = zip(numbers, row, strict=True)
        kinds = [(f"{kind} {cell.tone if isinstance(cell, Cell) else ''}".strip(), cell) for kind, cell in cells]
        return "<tr>" + "".join(f"<{tag}{_class(kind)}>{escape(str(cell))}</{tag}>" for kind, cell in kinds) + "</tr>"

    body = "".join(line("td", row) for row in part.rows)
    return f"<table><thead>{line('th', part.head)}</thead><tbody>{body}</tbody></table>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
