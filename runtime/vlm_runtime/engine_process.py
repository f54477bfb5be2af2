"""The engine's process: started, read, signalled, reaped."""

from __future__ import annotations

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

from vlm_runtime.command import EngineCommand
from vlm_runtime.failure import Exit
from vlm_runtime.output import LineSplitter, Output
from vlm_runtime.processes import children, listens
from vlm_runtime.sglang import drain_file

_PR_SET_CHILD_SUBREAPER: Final = 36
_READ_BYTES: Final = 1 << 16
_REAP_SECONDS: Final = 0.01

# Becomes the engine. In a container the kernel ends everything with the runtime; elsewhere, and in a pod whose containers
# share their processes, an engine would stay behind with its GPUs (PR_SET_PDEATHSIG is 1).
_DIE_WITH_ME: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class EngineProcess:
    """One run of the engine, in a session of its own so that all of it can be ended at once."""

    def __init__(self, command: EngineCommand, output: Output, on_line: Callable[[str], None]) -> None:
        self._command = command
        self._output = output
        self._on_line = on_line
        self._pid = 0
        self._reader: threading.Thread | None = None
        self._has_listened = False
        self._has_erred = False

    @property
    def pid(self) -> int:
        """The process number of the engine's main process."""
        return self._pid

    def listens(self) -> bool:
        """Whether it took its port: then no line of its log tells otherwise, since clients write into that log too."""
        self._has_listened = self._has_listened or listens(self._pid, self._command.port)
        return self._has_listened

    def start(self) -> None:
        """Starts it, from the thread that lives longest.

        Raises OSError where the program is not there, ValueError for words that the kernel does not take.
        """
        name, *arguments = self._command.argv
        program = shutil.which(name, path=self._command.env.get("PATH"))
        if program is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such program", name)
        Path(drain_file(self._command.port)).unlink(missing_ok=True)  # of a run before in the same pod
        read_end, write_end = os.pipe()
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-IS", "-c", _DIE_WITH_ME, str(os.getpid()), program, *arguments],
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

    def end_connections(self) -> None:
        """Has the engine end each connection with its next answer, so that clients go to other pods."""
        with contextlib.suppress(OSError):
            Path(drain_file(self._command.port)).touch()

    def terminate(self) -> None:
        """Asks the main process to end. Only that one: it ends its workers itself, after their last request."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)

    def kill(self) -> None:
        """Ends all of it at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)

    def reap(self) -> Exit | None:
        """Collects every child that ended, adopted ones too; how the engine ended once it did."""
        ended: Exit | None = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
                ended = Exit(signal=-code) if code < 0 else Exit(code=code)

    def clear(self, timeout_seconds: float = 5.0) -> None:
        """After the engine's end: ends what it left behind, so that the pipe closes and the last lines are there."""
        self.kill()
        Path(drain_file(self._command.port)).unlink(missing_ok=True)
        deadline = time.monotonic() + timeout_seconds
        # Again and again: what a dying process leaves behind is adopted only then.
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
                self._pass_on(splitter.feed(data))
        self._pass_on(splitter.end())

    def _pass_on(self, block: str) -> None:
        if not block:
            return
        try:
            for line in self._output.engine(block):
                self._on_line(line)
        except Exception as error:  # a fault of ours: who no longer reads stops the engine at its next line
            if not self._has_erred:
                self._has_erred = True
                self._output.say(f"a fault of the runtime while it reads the log, which it goes on with: {error!r}")


def adopt_orphans() -> None:
    """Makes this process the parent of orphans below it, as PID 1 is anyway."""
    if os.getpid() != 1:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
