"""How far a measurement is, on standard error: a bar for people, a line a round for files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from vlm_operator.measure.rounds import Round


class Progress:
    """Requests done of all requests."""

    def __init__(self, total: int, rounds: int, names: Sequence[str]) -> None:
        self._rounds, self._names, self._finished = rounds, names, 0
        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self._bar = Bar(
            TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
            TextColumn("left"), TimeRemainingColumn(), console=console, disable=not sys.stderr.isatty(), transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("starting the load's pod", total=total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """What goes on before the first round."""
        if self._bar.disable:
            print(text, file=sys.stderr)
        self._bar.update(self._task, description=text)

    def begin(self, round_number: int, target: int, concurrency: int) -> None:
        """A run starts: the benchmark makes its images."""
        which = f"round {round_number} of {self._rounds}" if round_number else "warm-up"
        self._bar.update(self._task, description=f"{which}: {self._names[target]}, {concurrency} at once")

    def done(self, requests: int) -> None:
        """So many requests of the present run are done."""
        self._bar.update(self._task, completed=self._finished + requests)

    def end(self, each: Round) -> None:
        """A run is over."""
        self._finished += each.requests
        self._bar.update(self._task, completed=self._finished)
        if self._bar.disable:
            which = f"round {each.round} of {self._rounds}" if each.round else "warm-up"
            failed = f", {each.failures} failed" if each.failures else ""
            name, rate = self._names[each.target], each.requests_per_second
            print(f"{which}: {name}, {each.concurrency} at once: {rate:.2f} requests/s{failed}", file=sys.stderr)
