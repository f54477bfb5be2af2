"""Ctrl-C, ``kill`` and a terminal that is closed: the first ends the command, and none of them keeps it from removing what
it made."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

HEEDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAIT: Final = b"what was made in the cluster is being removed: wait for it, or it stays\n"
STANDARD_ERROR: Final = 2


@dataclass
class _Signals:
    """What has come until now. Signals are the process's own, so there is one of these at a time."""

    ended: bool = False
    """One has raised KeyboardInterrupt: the command is on its way out."""
    shields: int = 0
    held: bool = False
    """One came while a shield was up."""


_now: list[_Signals] = []


@contextmanager
def ends_on_signals() -> Iterator[None]:
    """Inside, the first of SIGINT, SIGTERM and SIGHUP raises KeyboardInterrupt, and later ones only tell to wait.

    A signal that is ignored outside, as under ``nohup``, stays so.
    """
    signals = _Signals()

    def stop(number: int, frame: FrameType | None) -> None:
        if signals.ended or signals.shields:
            signals.held = True
            os.write(STANDARD_ERROR, WAIT)  # print may have been interrupted in its own middle
            return
        signals.ended = True
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in HEEDED}
    heeded = [number for number in HEEDED if before[number] is not signal.SIG_IGN]
    _now.append(signals)
    try:
        for number in heeded:
            signal.signal(number, stop)
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
        _now.remove(signals)


@contextmanager
def shielded() -> Iterator[None]:
    """What is inside is done to its end; a signal that came meanwhile raises KeyboardInterrupt afterwards."""
    signals = _now[-1] if _now else _Signals()
    signals.shields += 1
    try:
        yield
    finally:
        signals.shields -= 1
        if signals.held and not signals.ended and not signals.shields:
            signals.ended = True
            raise KeyboardInterrupt
