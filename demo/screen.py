"""What the demo prints: steps with their time, one live line, and one line for what went wrong."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLAIN_SECONDS = 15.0  # how often a waiting line is repeated where the output is no terminal


class DemoError(Exception):
    """An expected failure, shown as one line: what failed, where its log is, what to do next."""

    def __init__(self, message: str, *, log: Path | None = None, hint: str = "") -> None:
        parts = [message, *([f"log: {log}"] if log else []), *([f"next: {hint}"] if hint else [])]
        super().__init__("; ".join(parts))


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Screen:
    """Standard output. Lines may come from several threads."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._live = ""
        self._live_shown = 0.0

    def say(self, text: str = "") -> None:
        with self._lock:
            self._wipe()
            print(text, flush=True)

    def stream(self, text: str) -> None:
        """Text without a line's end, as it comes."""
        print(text, end="", flush=True)

    def live(self, text: str, *, key: str | None = None) -> None:
        """A line that the next one replaces. No terminal: printed when `key` changes, and now and then."""
        with self._lock:
            now = time.monotonic()
            if self._terminal:
                print(f"\r\033[K{text}", end="", flush=True)
                self._live = text
            elif (key or text) != self._live or now - self._live_shown >= PLAIN_SECONDS:
                print(text, flush=True)
                self._live, self._live_shown = key or text, now

    def _wipe(self) -> None:
        if self._terminal and self._live:
            print("\r\033[K", end="")
            self._live = ""

    def heading(self, text: str) -> None:
        self.say(f"\n== {text}  [{clock(time.monotonic() - self.started)}]")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Says what is done, and how long it took."""
        begun = time.monotonic()
        self.live(f"  {text} ...")
        yield
        self.say(f"  {text}: done in {time.monotonic() - begun:.1f} s")
