"""The engine's process: start, read its output, signal, reap."""

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vlm_runtime.report.log import LineSplitter, Log
from vlm_runtime.sglang.command import EngineCommand
from vlm_runtime.sglang.failure import Exit
from vlm_runtime.sglang.inside import drain_file
from vlm_runtime.sglang.processes import children, listens

_PR_SET_CHILD_SUBREAPER: Final = 36
_READ_BYTES: Final = 1 << 16
_REAP_SECONDS: Final = 0.01

# Execs the engine. In a container, the kernel ends everything with the runtime; elsewhere, and in a pod with a shared
# process namespace, the engine would outlive it and keep its GPUs (PR_SET_PDEATHSIG is 1).
_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class EngineProcess:
    """One run of the engine, in a session of its own so that all of it can be killed at once."""

    def __init__(self, command: EngineCommand, log: Log, on_line: Callable[[str], None]) -> None:
        self._command = command
        self._log = log
        self._on_line = on_line
        self._pid = 0
        self._reader: threading.Thread | None = None
        self._has_listened = False
        self._has_logged_error = False

    @property
    def pid(self) -> int:
        """The PID of the engine's main process."""
        return self._pid

    def has_listened(self) -> bool:
        """Whether it has listened on its port: then a log line that says otherwise comes from a client."""
        self._has_listened = self._has_listened or listens(self._pid, self._command.port)
        return self._has_listened

    def start(self) -> None:
        """Starts it. Call it from the main thread: the engine ends with the thread that started it.

        Raises OSError if there is no such program, ValueError for arguments that the kernel does not take.
        """
        name, *arguments = self._command.argv
        program = shutil.which(name, path=self._command.env.get("PATH"))
        if program is None:
            raise FileNotFoundError(errno.ENOENT, "no such program", name)
        Path(drain_file(self._command.port)).unlink(missing_ok=True)  # of an earlier run in the same pod
        read_end, write_end = os.pipe()
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-IS", "-c", _DIE_WITH_PARENT, str(os.getpid()), program, *arguments],
                self._command.env,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, write_end, 1),
                    (os.POSIX_SPAWN_DUP2, write_end, 2),
                ],
                setsid=True,
            )
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._reader = threading.Thread(target=self._read, args=(read_end,), name="log", daemon=True)
        self._reader.start()

    def close_connections(self) -> None:
        """Makes the engine close each connection with its next answer, so that clients move to other pods."""
        with contextlib.suppress(OSError):
            Path(drain_file(self._command.port)).touch()

    def terminate(self) -> None:
        """SIGTERM to the main process only: it ends its workers itself, after their last request."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)

    def reap(self) -> Exit | None:
        """Reaps every child that has ended, adopted ones too; returns how the engine ended, or None."""
        exit_status: Exit | None = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return exit_status
            if pid == 0:
                return exit_status
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
                exit_status = Exit(signal=-code) if code < 0 else Exit(code=code)

    def clean_up(self, timeout_seconds: float = 5.0) -> None:
        """After the engine's end: kills what it left behind, so that the pipe closes and the last lines arrive."""
        self.kill()
        Path(drain_file(self._command.port)).unlink(missing_ok=True)
        deadline = time.monotonic() + timeout_seconds
        # Repeatedly: the orphans of a dying process are adopted only then.
        while (left := children(os.getpid())) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_REAP_SECONDS)
            self.reap()
        if self._reader is not None:
            self._reader.join(timeout_seconds)

    def _read(self, read_end: int) -> None:
        splitter = LineSplitter()
        with open(read_end, "rb", buffering=0) as pipe:
            while data := pipe.read(_READ_BYTES):
                self._forward(splitter.feed(data))
        self._forward(splitter.end())

    def _forward(self, block: str) -> None:
        if not block:
            return
        try:
            for line in self._log.forward(block):
                self._on_line(line)
        except Exception as error:  # an internal error: if nobody read on, the engine would block at its next line
            if not self._has_logged_error:
                self._has_logged_error = True
                self._log.write(f"internal error while reading the engine's log, reading on: {error!r}")


def adopt_orphans() -> None:
    """Makes this process the parent of orphans below it, as PID 1 is anyway."""
    if os.getpid() != 1:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
