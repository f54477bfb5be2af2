"""Looks at the engine's processes in /proc: a dead scheduler whose engine lives on has to be noticed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

# The titles that SGLang gives its workers; without them it can answer nothing.
_TITLE: Final = b"sglang::"


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
    family = {engine_pid}
    growing = True
    while growing:
        new = {pid for pid, stat in stats.items() if stat.parent in family} - family
        growing = bool(new)
        family |= new
    for pid in sorted(family - {engine_pid}):
        title = _title(proc, pid)
        if title is not None:
            found.append(Worker(pid, stats[pid].start_ticks, title))
    return found


def is_alive(worker: Worker, proc: Path = PROC) -> bool:
    """False once it ended, also while its parent has not noticed."""
    stat = _stat(proc, worker.pid)
    return stat is not None and stat.start_ticks == worker.start_ticks and stat.state not in "ZX"


def children(pid: int, proc: Path = PROC) -> list[int]:
    """The direct children, those adopted included."""
    return [child for child in _pids(proc) if (stat := _stat(proc, child)) is not None and stat.parent == pid]


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    start_ticks: int


def _pids(proc: Path) -> list[int]:
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


def _stat(proc: Path, pid: int) -> _Stat | None:
    """State, parent and start time: fields 3, 4 and 22 of proc(5), counted after the name in parentheses."""
    try:
        fields = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return _Stat(state=fields[0], parent=int(fields[1]), start_ticks=int(fields[19]))


def _title(proc: Path, pid: int) -> str | None:
    try:
        command = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    return command.split(b"\0")[0].decode("utf-8", "replace").strip() if command.startswith(_TITLE) else None
