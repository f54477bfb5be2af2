"""Looks at the engine's processes in /proc: who is there, who died, and who computes.

A /proc that hides them is no error: then nothing is known.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

# The titles that SGLang gives its workers; without them it can answer nothing.
_TITLE: Final = b"sglang::"
# The state TCP_LISTEN in /proc/net/tcp.
_LISTEN: Final = "0A"
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Worker:
    """A process of the engine. The start time tells it from a later process with the same number."""

    pid: int
    start_ticks: int
    title: str


def workers(engine_pid: int, proc: Path = PROC) -> list[Worker]:
    """The engine's schedulers and detokenizers: its descendants with a title of SGLang's, by process number."""
    stats = {pid: stat for pid in _pids(proc) if (stat := _stat(proc, pid)) is not None}
    found: list[Worker] = []
    for pid in sorted(_family(engine_pid, stats) - {engine_pid}):
        title = _title(proc, pid)
        if title is not None:
            found.append(Worker(pid, stats[pid].start_ticks, title))
    return found


def is_alive(worker: Worker, proc: Path = PROC) -> bool:
    """False once it ended, also while its parent has not noticed. What cannot be read is taken for alive."""
    stat = _stat(proc, worker.pid)
    if stat is None:
        return not _is_gone(proc, worker.pid)
    return stat.start_ticks == worker.start_ticks and stat.state not in "ZX"


def is_stopped(pid: int, proc: Path = PROC) -> bool:
    """True while a signal holds the process. A debugger's hold is not meant."""
    stat = _stat(proc, pid)
    return stat is not None and stat.state == "T"


def cpu_seconds(pids: Collection[int], *, with_descendants: bool, proc: Path = PROC) -> float | None:
    """What these processes have used of the CPU so far, together; None where /proc does not say it of each."""
    stats = {each: stat for each in _pids(proc) if (stat := _stat(proc, each)) is not None}
    if not pids or not stats.keys() >= set(pids):
        return None
    members = set().union(*(_family(pid, stats) for pid in pids)) if with_descendants else pids
    return sum(stats[member].cpu_ticks for member in members) / _TICKS_PER_SECOND


def children(pid: int, proc: Path = PROC) -> list[int]:
    """The direct children, those adopted included."""
    return [child for child in _pids(proc) if (stat := _stat(proc, child)) is not None and stat.parent == pid]


def listens(pid: int, port: int, proc: Path = PROC) -> bool:
    """Whether the process itself takes connections on a TCP port. Of one that ended, or cannot be looked at, it is True."""
    own = proc / str(pid)
    try:
        rows = [line.split() for name in ("tcp", "tcp6") for line in _rows(own / "net" / name)]
        inodes = {
            f"socket:[{row[9]}]" for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port
        }
        held = _open_files(own)
        # A process that ends has closed everything before it is seen to be a zombie.
        return not held or not inodes.isdisjoint(held)
    except (OSError, ValueError, IndexError):
        return True


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    start_ticks: int
    cpu_ticks: int
    """Own, and of children that ended."""


def _rows(table: Path) -> list[str]:
    """A table of /proc/net without its headings; none where the kernel lacks that protocol."""
    return table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []


def _open_files(own: Path) -> set[str]:
    """What a process holds open, as the kernel names it: ``socket:[12345]``."""
    found: set[str] = set()
    for entry in (own / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(entry))
    return found


def _family(pid: int, stats: Mapping[int, _Stat]) -> set[int]:
    """A process with all that descend from it."""
    family = {pid}
    while new := {child for child, stat in stats.items() if stat.parent in family} - family:
        family |= new
    return family


def _pids(proc: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]
    except OSError:
        return []


def _is_gone(proc: Path, pid: int) -> bool:
    try:
        os.stat(proc / str(pid))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _stat(proc: Path, pid: int) -> _Stat | None:
    """Fields 3, 4, 14 to 17 and 22 of proc(5), counted after the name in parentheses."""
    try:
        fields = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return _Stat(
            state=fields[0],
            parent=int(fields[1]),
            start_ticks=int(fields[19]),
            cpu_ticks=sum(map(int, fields[11:15])),
        )
    except (OSError, ValueError, IndexError):
        return None


def _title(proc: Path, pid: int) -> str | None:
    try:
        command = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    return command.split(b"\0")[0].decode("utf-8", "replace").strip() if command.startswith(_TITLE) else None
