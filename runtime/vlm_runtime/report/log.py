"""The container's log: the engine's lines and the runtime's own, never mixed, and without secrets."""

import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from vlm_api.report import Failure
from vlm_runtime.redact import Redactor
from vlm_runtime.sglang.log_lines import own_requests

PATIENCE_SECONDS: Final = 10.0
# A line of server_args is about 30 kB. A longer line is dropped, since it would have to be kept in memory whole.
LONGEST_LINE_BYTES: Final = 1 << 20
KEPT_LINES: Final = 400
# Of each of them: a client's request can make a line of a mebibyte, and 400 of those.
KEPT_CHARACTERS: Final = 4096


class Writer(Protocol):
    """A binary stream; ``write`` returns how many bytes it took."""

    def write(self, data: memoryview, /) -> int | None: ...


class LogPipe:
    """A Writer for a file descriptor: waits a while for a slow reader, but never forever. Not thread-safe.

    A stuck reader would otherwise stop the engine, whose output comes through here, and delay the answer to SIGTERM.
    """

    def __init__(self, descriptor: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._descriptor = descriptor
        self._patience_seconds = patience_seconds
        self._is_stuck = False

    def write(self, data: memoryview, /) -> int:
        """Writes some of the data and returns how much. Raises TimeoutError if nobody reads, OSError if nobody can."""
        # After one timeout it does not wait again until somebody reads.
        patience = 0.0 if self._is_stuck else self._patience_seconds
        _, ready, _ = select.select([], [self._descriptor], [], patience)
        self._is_stuck = not ready
        if not ready:
            raise TimeoutError("nobody reads the log")
        # A pipe that is ready takes this much without blocking.
        return os.write(self._descriptor, data[: select.PIPE_BUF])


def occupy_standard_streams() -> None:
    """Opens /dev/null for closed standard streams, so that no socket gets their numbers and with them the log."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


class Log:
    """Writes to the container's standard output and keeps the last lines for the termination message."""

    def __init__(
        self,
        stream: Writer,
        redact: Redactor,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` stamps the runtime's own lines; ``elapsed`` measures the age of a line even if the clock is set."""
        self._stream = stream
        self._redact = redact
        self._clock = clock
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._tail: deque[tuple[float, str]] = deque(maxlen=KEPT_LINES)
        self._dropped = 0
        self._own_requests = own_requests()

    def set_engine_address(self, address: str) -> None:
        """Where the runtime reaches the engine: its requests come from that address as well, and are not logged."""
        self._own_requests = own_requests(address)

    def write(self, message: str) -> None:
        """One line of the runtime's own."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._clock()))
        self._write(f"[{stamp}] vlm-runtime: {self._redact(message)}\n")

    def forward(self, block: str) -> list[str]:
        """Writes whole lines of the engine; returns them redacted, without line ends."""
        lines = [line for line in self._redact(block).splitlines() if not self._own_requests.search(line)]
        now = self._elapsed()
        self._tail.extend((now, line[:KEPT_CHARACTERS]) for line in lines)
        if lines:
            self._write("".join(f"{line}\n" for line in lines))
        return lines

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return self._redact(text)

    def without_secrets(self, failure: Failure) -> Failure:
        """The same failure, safe to be written anywhere."""
        return failure.model_copy(update={"message": self._redact(failure.message)})

    def tail(self, within_seconds: float = math.inf) -> list[str]:
        """The engine's last lines, redacted, oldest first; only those at most so many seconds older than the last one.

        Older than the last one, not than now: dumping a large process takes longer than its last lines.
        """
        # A copy first: another thread still appends.
        lines = list(self._tail)
        since = lines[-1][0] - within_seconds if lines else 0.0
        return [line for when, line in lines if when >= since]

    def _write(self, text: str) -> None:
        lines = text.count("\n")
        with self._lock:
            if self._dropped:
                # On a line of its own: the last one that was written may be cut.
                text = f"\nvlm-runtime: {self._dropped} lines are missing here, because nobody read the log\n{text}"
            rest = memoryview(text.encode("utf-8", "replace"))
            try:
                while rest:
                    rest = rest[self._stream.write(rest) or 0 :]
                self._dropped = 0
            except OSError:  # nobody reads the log, or not now: that must not stop the engine
                self._dropped += lines


class LineSplitter:
    """Turns the bytes of a pipe into blocks of whole lines. A progress bar's carriage return ends a line as well."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_skipping = False

    def feed(self, data: bytes) -> str:
        """The lines that are complete now, maybe none."""
        data = data.replace(b"\r", b"\n")
        if self._is_skipping:
            _, newline, data = data.partition(b"\n")
            if not newline:
                return ""
            self._is_skipping = False
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest
        if len(rest) > LONGEST_LINE_BYTES:
            # A cut inside a secret would let half of it through: drop the line, and log that.
            self._rest, self._is_skipping = b"", True
            whole = whole + newline + b"[vlm-runtime: a line of more than 1 MiB was dropped here]"
            newline = b"\n"
        return (whole + newline).decode("utf-8", "replace")

    def end(self) -> str:
        """What is left when the pipe closes."""
        rest, self._rest = self._rest, b""
        return rest.decode("utf-8", "replace")
