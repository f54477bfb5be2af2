"""The demo's output: timed steps, a live line, and one-line errors."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLAIN_SECONDS = 15.0  # how often the live line is repeated without a terminal


class DemoError(Exception):
    """An expected failure in one line: what failed, the log, and the next step."""

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
        """Prints text without a line break."""
        print(text, end="", flush=True)

    def live(self, text: str, *, key: str | None = None) -> None:
        """A line that the next one replaces. Without a terminal, printed if `key` changes, and from time to time."""
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
        """Prints a step and its duration."""
        begun = time.monotonic()
        self.live(f"  {text} ...")
        yield
        self.say(f"  {text}: done in {time.monotonic() - begun:.1f} s")
