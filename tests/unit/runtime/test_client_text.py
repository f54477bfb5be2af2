"""Text of clients in the engine's log: model names, request ids, whole chats."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minicluster.ports import free_port
from vlm_runtime.redact import Redactor
from vlm_runtime.report.log import KEPT_CHARACTERS, KEPT_LINES, Log
from vlm_runtime.sglang.command import EngineCommand
from vlm_runtime.sglang.failure import Exit, classify, fatal
from vlm_runtime.sglang.log_lines import phase_of
from vlm_runtime.sglang.processes import listens
from vlm_runtime.supervise.engine import EngineProcess

LOST_PORT = "error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
A_MEBIBYTE = 1 << 20


def test_an_internal_error_is_logged_once_and_reading_goes_on(tmp_path: Path) -> None:
    def fail(line: str) -> None:
        raise ArithmeticError(line)

    with (tmp_path / "log").open("wb", buffering=0) as stream:
        words = "import time\nfor n in range(3):\n  print(n, flush=True)\n  time.sleep(0.2)"
        command = EngineCommand((sys.executable, "-c", words), os.environ, free_port())
        engine = EngineProcess(command, Log(stream, Redactor()), fail)
        engine.start()
        os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)
        engine.clean_up()
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if "vlm-runtime" not in line] == ["0", "1", "2"]
    assert [line.partition("vlm-runtime: ")[2] for line in lines if "vlm-runtime" in line] == [
        "internal error while reading the engine's log, reading on: ArithmeticError('0')"
    ]


@pytest.mark.parametrize("words", ["Capture ", "error while attempting to bind on address ", "unable to write to "])
def test_a_long_line_of_client_text_is_read_quickly(words: str) -> None:
    line = words * (A_MEBIBYTE // len(words))
    began = time.monotonic()
    assert phase_of(line) is None
    assert fatal(line) is None
    classify(Exit(code=1), [line] * KEPT_LINES, was_ready=True, oom_kills=0, device="cuda", shared_memory_full=True)
    assert time.monotonic() - began < 10  # without bounds it took minutes


def test_long_lines_are_written_whole_but_kept_in_part(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as stream:
        output = Log(stream, Redactor())
        output.forward("x" * A_MEBIBYTE + "\n")
    assert (tmp_path / "log").stat().st_size == A_MEBIBYTE + 1
    assert output.tail() == ["x" * KEPT_CHARACTERS]


def test_a_process_listens_on_its_own_ports_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        assert listens(os.getpid(), port)
        assert not listens(os.getpid(), free_port())
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            assert not listens(other.pid, port)


def test_a_process_listens_on_ipv6_as_well(tmp_path: Path) -> None:
    own = tmp_path / "1"
    (own / "net").mkdir(parents=True)
    (own / "fd").mkdir()
    # As Linux 6.1 writes it: port 8000 in state LISTEN, by the socket of inode 4711.
    row = (
        f"   0: {'0' * 32}:1F40 {'0' * 32}:0000 0A 00000000:00000000 00:00000000 00000000 65532 0 4711 1 0 100 0 0 10 0"
    )
    (own / "net" / "tcp6").write_text(f"  sl  local_address remote_address st\n{row}\n")
    (own / "fd" / "5").symlink_to("socket:[4711]")
    assert listens(1, 8000, proc=tmp_path)
    assert not listens(1, 8001, proc=tmp_path)


def test_a_process_that_has_ended_counts_as_listening() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # as the engine's is until it is collected
        assert listens(ended.pid, free_port())


def test_an_unreadable_process_counts_as_listening(tmp_path: Path) -> None:
    assert listens(1, 8000, proc=tmp_path)
