"""The folder of a measurement: every round as it comes, then the result and its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from vlm_operator.cli.errors import InvalidInputs
from vlm_operator.measure.result import Result

ROUNDS: Final = "rounds.jsonl"
RESULT: Final = "result.json"
REPORT: Final = "report.html"
PROFILE: Final = "profile.json"


@dataclass
class Records:
    """Rounds are written at once, so a measurement that breaks off leaves what it had."""

    folder: Path
    written: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @classmethod
    def begin(cls, folder: str | None, name: str, kind: str = "bench") -> Records:
        """Makes the folder. Raises InvalidInputs where it cannot be, or holds a measurement already."""
        path = Path(folder) if folder is not None else Path(f"{kind}-{name}-{datetime.now():%Y%m%d-%H%M%S}")
        if any((path / each).exists() for each in (ROUNDS, RESULT, REPORT, PROFILE)):
            raise InvalidInputs([f"--folder: {path} holds a measurement already: give another folder"])
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputs([f"--folder: {path} cannot be made: {error.strerror}"]) from error
        return cls(path)

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Where nothing was measured, an empty folder says nothing.
        if not self.written and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def event(self, job: str, event: Mapping[str, Any]) -> None:
        """Keeps a round as the pod told it."""
        if event["event"] == "round":
            with (self.folder / ROUNDS).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"job": job, **event}) + "\n")
            self._note(ROUNDS)

    def result(self, result: Result) -> None:
        """Writes what is known until now, with the report where plots can be drawn."""
        from vlm_operator.measure.report import bench_report

        self.results.append(result)
        found = [each.to_json() for each in self.results]
        self.write(RESULT, json.dumps(found[0] if len(found) == 1 else found, indent=2))
        self.write(REPORT, bench_report(self.results))

    def write(self, name: str, text: str) -> None:
        """A file of the folder."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, data: bytes) -> None:
        """The same for what is no text."""
        (self.folder / name).write_bytes(data)
        self._note(name)

    def _note(self, name: str) -> None:
        if name not in self.written:
            self.written.append(name)
