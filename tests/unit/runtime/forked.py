"""Runs the runtime in a fork of a server that has imported it: a start costs milliseconds instead of a second. Not a test."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["vlm_runtime.__main__"])


def _main(argv: Sequence[str], env: Mapping[str, str], log_path: str) -> None:
    """What ``python3 -m vlm_runtime`` does, with shorter pauses between polls."""
    os.setsid()
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = env.get("PYTHONPATH", "").split(":")
    from vlm_runtime.__main__ import main
    from vlm_runtime.supervise import leader, run, supervisor

    run.Pace = partial(run.Pace, start_poll=0.05, serving_poll=0.2)  # type: ignore[misc, assignment]
    supervisor.STOP_SECONDS = leader.GONE_AFTER_SECONDS = 0.5  # type: ignore[misc]
    leader._POLL_SECONDS = 0.1  # type: ignore[misc]
    sys.exit(main(argv))


class ForkedRuntime:
    """One run, with the methods of ``subprocess.Popen`` that the tests use."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log_path: str) -> None:
        self._process = CONTEXT.Process(target=_main, args=(argv, dict(env), log_path))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError(f"the runtime still runs after {timeout} s")
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
