"""The engine's processes in /proc: which exist, which died, and which compute.

A /proc that hides processes is not an error: then nothing is known about them.
"""

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")

# SGLang's title for its worker processes; if one is missing, the engine cannot answer.
_TITLE: Final = b"sglang::"
# The state TCP_LISTEN in /proc/net/tcp.
_LISTEN: Final = "0A"
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class WorkerProcess:
    """A process of the engine. The start time tells it from a later process with the same PID."""

    pid: int
    start_ticks: int
    title: str


def worker_processes(engine_pid: int, proc: Path = PROC) -> list[WorkerProcess]:
    """The engine's schedulers and detokenizers: its descendants with a title of SGLang's, by PID."""
    stats = {pid: stat for pid in _pids(proc) if (stat := _stat(proc, pid)) is not None}
    titles = {pid: _title(proc, pid) for pid in sorted(_family(engine_pid, stats) - {engine_pid})}
    return [WorkerProcess(pid, stats[pid].start_ticks, title) for pid, title in titles.items() if title is not None]


def is_alive(worker: WorkerProcess, proc: Path = PROC) -> bool:
    """False once it has ended, even before its parent notices. A process that cannot be read counts as alive."""
    stat = _stat(proc, worker.pid)
    if stat is None:
        return not _is_gone(proc, worker.pid)
    return stat.start_ticks == worker.start_ticks and stat.state not in "ZX"


def is_stopped(pid: int, proc: Path = PROC) -> bool:
    """Whether a signal has stopped the process. One held by a debugger does not count."""
    stat = _stat(proc, pid)
    return stat is not None and stat.state == "T"


def cpu_seconds(pids: Collection[int], *, with_descendants: bool, proc: Path = PROC) -> float | None:
    """The CPU time that these processes have used so far, summed; None if /proc does not say it of each."""
    stats = {each: stat for each in _pids(proc) if (stat := _stat(proc, each)) is not None}
    if not pids or not stats.keys() >= set(pids):
        return None
    members = set().union(*(_family(pid, stats) for pid in pids)) if with_descendants else pids
    return sum(stats[member].cpu_ticks for member in members) / _TICKS_PER_SECOND


def children(pid: int, proc: Path = PROC) -> list[int]:
    """The direct children, including adopted ones."""
    return [child for child in _pids(proc) if (stat := _stat(proc, child)) is not None and stat.parent == pid]


def listens(pid: int, port: int, proc: Path = PROC) -> bool:
    """Whether the process itself listens on a TCP port. True also if it has ended or cannot be read."""
    own = proc / str(pid)
    try:
        rows = [line.split() for name in ("tcp", "tcp6") for line in _rows(own / "net" / name)]
        inodes = {
            f"socket:[{row[9]}]" for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port
        }
        open_files = _open_files(own)
        # A process that ends closes everything before it shows as a zombie.
        return not open_files or not inodes.isdisjoint(open_files)
    except (OSError, ValueError, IndexError):
        return True


@dataclass(frozen=True)
class _Stat:
    state: str
    parent: int
    start_ticks: int
    cpu_ticks: int
    """Its own, and of children that have ended."""


def _rows(table: Path) -> list[str]:
    """A table of /proc/net without its headings; empty if the kernel lacks that protocol."""
    return table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []


def _open_files(own: Path) -> set[str]:
    """The open files of a process, as the kernel names them: ``socket:[12345]``."""
    names: set[str] = set()
    for entry in (own / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            names.add(os.readlink(entry))
    return names


def _family(pid: int, stats: Mapping[int, _Stat]) -> set[int]:
    """A process and all its descendants."""
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
            state=fields[0], parent=int(fields[1]), start_ticks=int(fields[19]), cpu_ticks=sum(map(int, fields[11:15]))
        )
    except (OSError, ValueError, IndexError):
        return None


def _title(proc: Path, pid: int) -> str | None:
    try:
        command = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    return command.split(b"\0")[0].decode("utf-8", "replace").strip() if command.startswith(_TITLE) else None
