"""The program in the engine's container, with a small server in the engine's place that writes traces as SGLang does."""

from __future__ import annotations

import base64
import gzip
import http.server
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.measure.events import Recording

from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.profile import RUN_LINE, received
from vlm_operator.measure import recorder
from vlm_operator.measure.job import program

TRACE = gzip.compress(
    json.dumps({"traceEvents": Recording().events, "padding": random.Random(1).randbytes(100_000).hex()}).encode(),
    mtime=0,
)


class Engine(http.server.BaseHTTPRequestHandler):
    """Writes the stages that it is told to, cut off at first."""

    asked: list[tuple[str, dict[str, Any], str | None]]
    stages: tuple[str, ...]
    status = 200
    whole_from = 99
    """From which start on both stages come."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append((self.path, body, self.headers.get("Authorization")))
        if self.path == "/start_profile":
            begun = sum(path == "/start_profile" for path, _, _ in self.asked)
            for stage in self.stages if begun < self.whole_from else ("EXTEND", "DECODE"):
                path = Path(body["output_dir"]) / f"vlm-TP-0-{stage}.trace.json.gz"
                path.write_bytes(TRACE[:50])
                threading.Timer(0.3, path.write_bytes, [TRACE]).start()
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"Profiling is already in progress.")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Engine]]:
    handler = type("Handler", (Engine,), {"asked": [], "stages": ("EXTEND", "DECODE")})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("VLMSERVE_API_KEY", "sk-key")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(recorder.tempfile, "tempdir", None)
    monkeypatch.setattr(recorder, "PAUSE_SECONDS", 0.05)
    handler.port = server.server_port  # type: ignore[attr-defined]
    yield handler
    server.shutdown()
    server.server_close()


def record(engine: type[Engine], capsys: pytest.CaptureFixture[str], seconds: float = 20) -> tuple[int, Iterator[str]]:
    options = {
        "port": engine.port, "steps": 3, "activities": ["CPU"], "with_stack": False, "seconds": seconds,  # type: ignore[attr-defined]
        "key_variable": "VLMSERVE_API_KEY",
    }  # fmt: skip
    code = recorder.main(json.dumps(options))
    return code, iter(capsys.readouterr().out.splitlines())


def say(text: str) -> None:
    """Nobody looks at the progress."""


def test_both_stages_come_whole_and_leave_nothing_in_the_pod(
    engine: type[Engine], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, lines = record(engine, capsys)
    assert code == 0
    assert dict(received(lines, say)) == {"prefill": TRACE, "decode": TRACE}
    [(path, body, key)] = engine.asked
    assert (path, key) == ("/start_profile", "Bearer sk-key")
    assert (body["num_steps"], body["profile_by_stage"], body["activities"]) == (3, True, ["CPU"])
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_refuses_is_told_in_its_words(engine: type[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    engine.status = 500
    engine.stages = ()
    code, lines = record(engine, capsys)
    assert code == 1
    with pytest.raises(ClusterError, match="refused to record: HTTP 500: Profiling is already in progress"):
        dict(received(lines, say))


def test_a_stage_that_does_not_come_is_stopped_and_the_other_one_kept(
    engine: type[Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.stages = ("EXTEND",)
    code, lines = record(engine, capsys, seconds=1)
    assert code == 0
    assert dict(received(lines, say)) == {"prefill": TRACE}
    assert [path for path, _, _ in engine.asked] == ["/start_profile", "/stop_profile"]


def test_a_stage_that_the_engine_gave_up_is_recorded_by_another_start(
    engine: type[Engine], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A decode step comes first, and a prefill step in the middle of its recording: SGLang 0.5.23 then drops the latter.
    monkeypatch.setattr(recorder, "AGAIN_SECONDS", 0.5)
    engine.stages, engine.whole_from = ("DECODE",), 2
    code, lines = record(engine, capsys)
    assert code == 0
    assert dict(received(lines, say)) == {"prefill": TRACE, "decode": TRACE}
    assert [path for path, _, _ in engine.asked] == ["/start_profile", "/stop_profile", "/start_profile"]


def test_without_load_nothing_goes_on_recording(engine: type[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    engine.stages = ()
    code, lines = record(engine, capsys, seconds=0)
    assert code == 1
    with pytest.raises(ClusterError, match="is there load"):
        dict(received(lines, say))
    assert engine.asked[-1][0] == "/stop_profile"


def test_a_stream_that_is_cut_off_is_no_trace(engine: type[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    _, lines = record(engine, capsys)
    with pytest.raises(ClusterError, match="cut off"):
        dict(received((line for number, line in enumerate(lines) if number != 3), say))


def test_the_program_runs_from_one_line_of_standard_input(engine: type[Engine]) -> None:
    engine.stages = ("EXTEND", "DECODE")
    options = {
        "port": engine.port, "steps": 1, "activities": ["CPU"], "with_stack": False, "seconds": 20,  # type: ignore[attr-defined]
        "key_variable": "VLMSERVE_API_KEY",
    }  # fmt: skip
    text = base64.b64encode(program("recorder").encode()) + b"\n"
    command = [sys.executable, "-I", "-c", RUN_LINE, json.dumps(options)]
    done = subprocess.run(command, input=text, capture_output=True, check=True)
    assert dict(received(iter(done.stdout.decode().splitlines()), say)) == {"prefill": TRACE, "decode": TRACE}
