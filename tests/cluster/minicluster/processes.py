"""Programs in the background that outlive this process, found again by pid files."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .errors import ClusterError
from .shell import Argument, environment, missing

POLL_SECONDS = 0.1


def identity(pid: int) -> str | None:
    """What tells this process from a later one with the same number: the boot and its start time in ticks.

    None when there is no such process, or only its zombie (an init that reaps late keeps those for long).
    """
    try:
        # The name, in brackets, may hold spaces; the fields after it start with the state.
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else f"{boot} {fields[19]}"


class Daemons:
    """The background programs of one folder: `FOLDER/pid/NAME` and `FOLDER/log/NAME.log`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def log(self, name: str) -> Path:
        return self.folder / "log" / f"{name}.log"

    def start(self, name: str, argv: Sequence[Argument]) -> None:
        """Starts a program detached from the terminal, so that it outlives that and `make`."""
        pid_file = self.folder / "pid" / name
        for parent in (pid_file.parent, self.log(name).parent):
            parent.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("wb") as output:
            try:
                child = subprocess.Popen(
                    [str(part) for part in argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment(),
                    cwd="/",
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise missing(error) from error
        self._children[name] = child
        pid_file.write_text(f"{child.pid} {identity(child.pid)}")

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "pid").glob("*"))

    def pid(self, name: str) -> int | None:
        """The process, if it runs and is the very one that was started here."""
        if (child := self._children.get(name)) is not None and child.poll() is not None:
            return None
        try:
            number, _, wanted = (self.folder / "pid" / name).read_text().partition(" ")
        except OSError:
            return None
        return int(number) if number.isdigit() and identity(int(number)) == wanted else None

    def wait_for(self, what: str, ready: Callable[[], bool], *, daemon: str, seconds: float = 60.0) -> None:
        """Waits until `ready()`; an error as soon as the daemon that should bring it about has ended."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.pid(daemon) is None:
                raise ClusterError(f"{daemon} ended before {what}", log=self.log(daemon))
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not within {seconds:.0f} s", log=self.log(daemon))
            time.sleep(POLL_SECONDS)

    def stop(self, names: Iterable[str], seconds: float) -> None:
        """Asks all of them to end, waits, and kills what is left."""
        names = list(names)
        running = {name: pid for name in names if (pid := self.pid(name)) is not None}
        for pid in running.values():
            send(pid, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while any(self.pid(name) for name in running) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 2)
        for name, pid in running.items():
            if self.pid(name) is not None:
                send(pid, signal.SIGKILL)
        for name in names:
            if (child := self._children.pop(name, None)) is not None:
                child.wait()
            (self.folder / "pid" / name).unlink(missing_ok=True)


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_until_gone(find: Callable[[], set[int]], what: str, seconds: float = 10.0) -> None:
    """Kills the processes that `find` names, again and again, since each may have started another meanwhile."""
    deadline = time.monotonic() + seconds
    while pids := {pid for pid in find() if identity(pid) is not None}:
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} cannot be killed: processes {sorted(pids)}")
        for pid in pids:
            send(pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS / 2)
