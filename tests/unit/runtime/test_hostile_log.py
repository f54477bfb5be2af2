"""What clients can write into the engine's log, which the runtime reads: names of models, ids of requests, whole chats."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.runtime.harness import Container

from minicluster.ports import free_port
from vlm_runtime.command import EngineCommand
from vlm_runtime.engine_process import EngineProcess
from vlm_runtime.failure import Exit, classify, fatal
from vlm_runtime.output import KEPT_CHARACTERS, KEPT_LINES, Output
from vlm_runtime.phases import phase_of
from vlm_runtime.processes import listens
from vlm_runtime.redact import Redactor

LOST_PORT = "error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
A_MEBIBYTE = 1 << 20


def ask(port: int, model: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 32}}
    body = {"model": model, "messages": [{"role": "user", "content": [image]}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def test_a_client_that_writes_that_the_port_is_taken_ends_no_engine_that_serves(
    container: Callable[..., Container],
) -> None:
    run = container()
    run.wait_ready()
    for text in (LOST_PORT, f"x\n[2026-11-30 06:00:00] ERROR:    [Errno 98] {LOST_PORT}\n"):
        ask(run.engine_port, text)
    run.wait_for(lambda: run.log().count(LOST_PORT) >= 2, "told in the log")
    time.sleep(1.5)  # the main loop goes round once a second
    assert run.process.poll() is None
    assert run.get("/readyz")[0] == 200


def test_what_clients_wrote_is_not_why_an_engine_ended_that_served(container: Callable[..., Container]) -> None:
    run = container(ignore_dead_worker=True)
    run.wait_ready()
    ask(run.engine_port, LOST_PORT)
    (engine,) = (
        int(pid) for pid in Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children").read_text().split()
    )
    os.kill(engine, signal.SIGKILL)
    assert run.wait_exit() == 1
    assert run.failure()["reason"] == "EngineKilled"


def test_numbers_of_a_client_that_python_cannot_take_do_not_stop_the_log_and_with_it_the_engine(
    container: Callable[..., Container],
) -> None:
    run = container()
    run.wait_ready()
    no_room = "MmItemMemoryPool has no free chunk large enough for a 1 MiB tensor (pool size: {} MiB)"
    for words in (
        f"CUDA IPC multimodal feature pools reserve {'9' * 5000} MiB total on GPU 0",
        no_room.format("1.2.3"),
        no_room.format("9" * 400),
        "what came after",
    ):
        ask(run.engine_port, words)
    run.wait_for(lambda: "what came after" in run.log(), "read on")
    assert "a fault of the runtime" not in run.log()


def test_a_fault_while_the_log_is_read_is_said_once_and_the_log_is_read_on(tmp_path: Path) -> None:
    def fail(line: str) -> None:
        raise ArithmeticError(line)

    with (tmp_path / "log").open("wb", buffering=0) as stream:
        words = "import time\nfor n in range(3):\n  print(n, flush=True)\n  time.sleep(0.2)"
        command = EngineCommand((sys.executable, "-c", words), os.environ, free_port())
        engine = EngineProcess(command, Output(stream, Redactor()), fail)
        engine.start()
        os.waitid(os.P_PID, engine.pid, os.WEXITED | os.WNOWAIT)
        engine.clear()
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if "vlm-runtime" not in line] == ["0", "1", "2"]
    assert [line.partition("vlm-runtime: ")[2] for line in lines if "vlm-runtime" in line] == [
        "a fault of the runtime while it reads the log, which it goes on with: ArithmeticError('0')"
    ]


@pytest.mark.parametrize("words", ["Capture ", "error while attempting to bind on address ", "unable to write to "])
def test_a_long_line_of_a_clients_words_takes_no_time_to_read(words: str) -> None:
    line = words * (A_MEBIBYTE // len(words))
    began = time.monotonic()
    assert phase_of(line) is None
    assert fatal(line) is None
    classify(Exit(code=1), [line] * KEPT_LINES, was_ready=True, oom_kills=0, device="cuda", shared_memory_full=True)
    assert time.monotonic() - began < 10  # without bounds it took minutes


def test_long_lines_are_written_whole_and_kept_in_part(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb", buffering=0) as stream:
        output = Output(stream, Redactor())
        output.engine("x" * A_MEBIBYTE + "\n")
    assert (tmp_path / "log").stat().st_size == A_MEBIBYTE + 1
    assert output.tail() == ["x" * KEPT_CHARACTERS]


def test_a_process_listens_on_its_own_ports_and_on_nobody_elses() -> None:
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


def test_a_process_that_has_ended_tells_nothing_of_its_port() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # as the engine's is until it is collected
        assert listens(ended.pid, free_port())


def test_a_process_that_cannot_be_looked_at_counts_as_one_that_listens(tmp_path: Path) -> None:
    assert listens(1, 8000, proc=tmp_path)
