"""The one writer of the container's log: the engine's lines and the runtime's own, never mixed and without secrets."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from vlm_api.report import Failure
from vlm_runtime.redact import Redactor

# A line of server_args is about 30 kB. Beyond this, a line is cut, since it would have to be kept in memory whole.
LONGEST_LINE_BYTES: Final = 1 << 20
KEPT_LINES: Final = 400
# Of each of them. A request of a client may make a line of a mebibyte, and 400 of those.
KEPT_CHARACTERS: Final = 4096

# The runtime's own questions, every two seconds: not worth a line in the log of the pod.
_OWN_PROBE: Final = (
    r'(?<![\w.:])(?:127\.0\.0\.1|::1{}):\d+ - "GET /(?:ready|health|health_generate|server_info|metrics/)'
    r' HTTP/1\.[01]" (?:200|404|503)'
)


class Writer(Protocol):
    """A binary stream; ``write`` says how many bytes it took."""

    def write(self, data: memoryview, /) -> int | None: ...


class Output:
    """Writes to the container's standard output and keeps the last lines for the termination message."""

    def __init__(
        self,
        stream: Writer,
        redact: Redactor,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` stamps the runtime's own lines; ``elapsed`` tells how long ago a line came, also where that is set."""
        self._stream = stream
        self._redact = redact
        self._clock = clock
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._tail: deque[tuple[float, str]] = deque(maxlen=KEPT_LINES)
        self._lost = 0
        self._own_probe = re.compile(_OWN_PROBE.format(""))

    def asks_at(self, address: str) -> None:
        """Where the runtime asks its engine: a question to the pod's own address comes from that address as well."""
        self._own_probe = re.compile(_OWN_PROBE.format("|" + re.escape(address)))

    def say(self, message: str) -> None:
        """One line of the runtime's own."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._clock()))
        self._write(f"[{stamp}] vlm-runtime: {self._redact(message)}\n")

    def engine(self, block: str) -> list[str]:
        """Passes whole lines of the engine on; returns them, redacted, without line ends."""
        lines = [line for line in self._redact(block).splitlines() if not self._own_probe.search(line)]
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
        """The engine's last lines, redacted, oldest first; only those that came so long before the last one at most.

        Before the last one, not before now: dumping a large process takes longer than what it said.
        """
        # A copy first: what still comes from the pipe is added by another thread.
        lines = list(self._tail)
        since = lines[-1][0] - within_seconds if lines else 0.0
        return [line for when, line in lines if when >= since]

    def _write(self, text: str) -> None:
        lines = text.count("\n")
        with self._lock:
            if self._lost:
                # On a line of its own: the last one that was written may have been cut.
                text = f"\nvlm-runtime: {self._lost} lines are missing here, since nobody took them\n{text}"
            rest = memoryview(text.encode("utf-8", "replace"))
            try:
                while rest:
                    rest = rest[self._stream.write(rest) or 0 :]
                self._lost = 0
            except OSError:  # nobody reads the log any more, or not now: that must not stop the engine
                self._lost += lines


class LineSplitter:
    """Turns the bytes of a pipe into blocks of whole lines. A progress bar's carriage return ends a line as well."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> str:
        """The whole lines that are there now, maybe none."""
        data = data.replace(b"\r", b"\n")
        if self._skipping:
            _, newline, data = data.partition(b"\n")
            if not newline:
                return ""
            self._skipping = False
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest
        if len(rest) > LONGEST_LINE_BYTES:
            # Cutting inside a secret would let half of it through: the line goes, and the log says so.
            self._rest, self._skipping = b"", True
            whole = whole + newline + b"[vlm-runtime: a line of more than 1 MiB is left out here]"
            newline = b"\n"
        return (whole + newline).decode("utf-8", "replace")

    def end(self) -> str:
        """What is left when the pipe is closed."""
        rest, self._rest = self._rest, b""
        return rest.decode("utf-8", "replace")
