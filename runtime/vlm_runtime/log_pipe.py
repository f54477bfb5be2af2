"""The container's standard output: lines wait a while for whoever reads them, never for ever."""

from __future__ import annotations

import os
import select
from typing import Final

PATIENCE_SECONDS: Final = 10.0


class LogPipe:
    """A Writer for a file descriptor. Not for several threads.

    A reader that is stuck would stop the engine, whose own output comes through here, and the answer to SIGTERM.
    """

    def __init__(self, descriptor: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._descriptor = descriptor
        self._patience_seconds = patience_seconds
        self._is_stuck = False

    def write(self, data: memoryview, /) -> int:
        """Some of the data, and how much of it. Raises TimeoutError where nobody takes it, OSError where nobody can."""
        # Who waited once for nothing does not wait again until somebody reads.
        patience = 0.0 if self._is_stuck else self._patience_seconds
        _, ready, _ = select.select([], [self._descriptor], [], patience)
        self._is_stuck = not ready
        if not ready:
            raise TimeoutError("nobody takes the log")
        # A pipe that is ready takes so much without waiting.
        return os.write(self._descriptor, data[: select.PIPE_BUF])


def occupy_standard_streams() -> None:
    """Gives closed standard streams to /dev/null, so that no socket gets their numbers and the log with them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
