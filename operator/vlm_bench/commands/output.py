"""What a command shows and keeps: reports in the terminal, progress on standard error, and the folder of a measurement."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from vlm_bench.reports.page import Cell, Heading, Line, Part, Table
from vlm_bench.statistics.result import Result
from vlm_bench.statistics.rounds import Round
from vlm_operator.cli.console import INDENT, bar, columns, heading
from vlm_operator.errors import InvalidInputs

ROUNDS: Final = "rounds.jsonl"
RESULT: Final = "result.json"
REPORT: Final = "report.html"
PROFILE: Final = "profile.json"
BAR_WIDTH: Final = 24
STYLES: Final = {"good": "bold green", "bad": "bold red", "warning": "yellow", "note": "dim", "": ""}


def show(console: Console, parts: Iterable[Part]) -> None:
    """Prints a report."""
    for part in parts:
        if isinstance(part, Heading):
            console.print(heading(part.text))
        elif isinstance(part, Line):
            console.print(Padding(Text(part.text, style=STYLES[part.tone]), (0, 0, 0, len(INDENT)), expand=False))
        elif isinstance(part, Table):
            table = columns(*(name.upper() for name in part.head), last_wraps=False)
            for column, is_number in zip(table.columns, part.is_number(), strict=True):
                column.justify = "right" if is_number else "left"
            for first, *rest in part.rows:
                table.add_row(INDENT + str(first), *(_cell(console, each) for each in rest))
            console.print(table)


def _cell(console: Console, cell: object) -> Text:
    if not isinstance(cell, Cell):
        return Text(str(cell))
    graph = Text() if cell.share is None else bar(console, cell.share, BAR_WIDTH) + Text(" ")
    return graph + Text(cell.text, style=STYLES[cell.tone])


class ProgressBar:
    """Requests done, of all requests: a bar in a terminal, one line per round in a file."""

    def __init__(self, total: int, rounds: int, names: Sequence[str]) -> None:
        self._rounds, self._names, self._finished = rounds, names, 0
        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(), console=console, disable=not sys.stderr.isatty(), transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("starting the load's pod", total=total)

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Shows what happens before the first round."""
        if self._bar.disable:
            print(text, file=sys.stderr)
        self._bar.update(self._task, description=text)

    def event(self, event: Mapping[str, Any]) -> None:
        """Shows a ``begin`` or ``progress`` event of the load's program."""
        if event["event"] == "begin":
            where = f"{self._names[event['target']]}, concurrency {event['concurrency']}"
            self._bar.update(self._task, description=f"{self._round(event['round'])}: {where}")
        elif event["event"] == "progress":
            self._bar.update(self._task, completed=self._finished + event["done"])

    def end(self, each: Round) -> None:
        """Shows that a run has ended."""
        self._finished += each.requests
        self._bar.update(self._task, completed=self._finished)
        if self._bar.disable:
            failed = f", {each.failures} failed" if each.failures else ""
            where = f"{self._names[each.target]}, concurrency {each.concurrency}"
            rate = f"{each.requests_per_second:.2f} requests/s"
            print(f"{self._round(each.round)}: {where}: {rate}{failed}", file=sys.stderr)

    def _round(self, number: int) -> str:
        return f"round {number} of {self._rounds}" if number else "warm-up"


@dataclass
class Folder:
    """The files of a measurement. Rounds are written as they come, so an interrupted measurement keeps them."""

    path: Path
    written: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @classmethod
    def create(cls, path: str | None, name: str, kind: str = "bench") -> Folder:
        """Creates the folder. Raises InvalidInputs if that fails, or if it holds a measurement already."""
        folder = Path(path) if path is not None else Path(f"{kind}-{name}-{datetime.now():%Y%m%d-%H%M%S}")
        if any((folder / each).exists() for each in (ROUNDS, RESULT, REPORT, PROFILE)):
            raise InvalidInputs([f"--folder: {folder} holds a measurement already: choose another folder"])
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputs([f"--folder: {folder} cannot be created ({error.strerror}): choose another"]) from error
        return cls(folder)

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.written and not any(self.path.iterdir()):
            self.path.rmdir()

    def round(self, job: str, event: Mapping[str, Any]) -> None:
        """Appends a ``round`` event."""
        with (self.path / ROUNDS).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"job": job, **event}) + "\n")
        self._note(ROUNDS)

    def result(self, result: Result) -> None:
        """Writes the results so far, with the report."""
        from vlm_bench.reports.bench_report import bench_page

        self.results.append(result)
        documents = [each.to_json() for each in self.results]
        self.write(RESULT, json.dumps(documents[0] if len(documents) == 1 else documents, indent=2))
        self.write(REPORT, bench_page(self.results))

    def write(self, name: str, data: str | bytes) -> None:
        """Writes a file."""
        (self.path / name).write_bytes(data.encode() if isinstance(data, str) else data)
        self._note(name)

    def _note(self, name: str) -> None:
        if name not in self.written:
            self.written.append(name)
