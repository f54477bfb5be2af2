"""What ends a command: each line of it goes to standard error."""

from __future__ import annotations

from collections.abc import Sequence


class InvalidInputs(Exception):
    """The input is not valid: one line for each thing that is wrong. Exit code 2."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


class ClusterError(Exception):
    """The cluster cannot be asked, or does not have what was asked for. Exit code 1."""
