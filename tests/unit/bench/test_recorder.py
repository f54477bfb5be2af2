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
from unit.bench.tls_servers import self_signed, serving
from unit.bench.trace_events import Recording

from vlm_bench.commands.recording import RUN_LINE, received
from vlm_bench.programs import program, recorder
from vlm_operator.errors import ClusterError


def trace(*modes: str) -> bytes:
    """A trace with these steps, larger than one piece of the stream."""
    made = Recording()
    for mode in modes:
        made.step(f"step[{mode} bs=2]")
    # PyTorch writes the category right before the name.
    events = [{"ph": e["ph"], "cat": e["cat"], "name": e["name"]} for e in made.events]
    # What PyTorch shows again in the device's row is the same step.
    events += [{**e, "cat": "gpu_user_annotation"} for e in events]
    padding = random.Random(1).randbytes(100_000).hex()
    return gzip.compress(json.dumps({"traceEvents": events, "padding": padding}).encode(), mtime=0)


BOTH = ("DECODE",) * 9 + ("EXTEND",) * 3
WHOLE = trace(*BOTH)


class Engine(http.server.BaseHTTPRequestHandler):
    """Writes one recording after the other, cut off at first; the last one is written when it is told to stop."""

    asked: list[tuple[str, dict[str, Any], str | None]]
    recordings: list[tuple[str, ...] | None]
    """Modes of the steps of each recording. None: its steps do not come, so it ends when it is stopped."""
    stopped: tuple[str, ...] | None = None
    status = 200
    tls = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append((self.path, body, self.headers.get("Authorization")))
        if self.path == "/start_profile":
            steps = self.recordings.pop(0) if self.recordings else None
            type(self).folder = body["output_dir"]  # type: ignore[attr-defined]
        else:
            steps = self.stopped
        if steps is not None:
            path = Path(self.folder) / "vlm-TP-0.trace.json.gz"  # type: ignore[attr-defined]
            path.write_bytes(trace(*steps)[:50])
            threading.Timer(0.1, path.write_bytes, [trace(*steps)]).start()
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"Profiling is already in progress.")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Engine]]:
    handler = type("Handler", (Engine,), {"asked": [], "recordings": [BOTH]})
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
        "port": engine.port, "tls": engine.tls, "steps": 3, "activities": ["CPU"], "with_stack": False, "seconds": seconds,  # type: ignore[attr-defined]
        "key_variable": "VLMSERVE_API_KEY",
    }  # fmt: skip
    code = recorder.main(json.dumps(options))
    return code, iter(capsys.readouterr().out.splitlines())


def say(text: str) -> None:
    """Nobody looks at the progress."""


def test_the_trace_comes_whole_and_leaves_nothing_in_the_pod(
    engine: type[Engine], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, lines = record(engine, capsys)
    assert code == 0
    assert received(lines, say).data == WHOLE
    [(path, body, key)] = engine.asked
    assert (path, key) == ("/start_profile", "Bearer sk-key")
    # By stage, SGLang puts steps of one stage into the other one's file.
    assert "profile_by_stage" not in body
    assert (body["num_steps"], body["activities"]) == (12, ["CPU"])
    assert [path.name for path in tmp_path.iterdir()] == ["vlm-profile.lock"]


def test_an_engine_with_a_certificate_is_recorded_by_https_whatever_name_it_is_made_out_for(
    engine: type[Engine], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (keys := tmp_path / "keys").mkdir()
    with serving(engine, self_signed(keys, "vlm")) as port:
        engine.port, engine.tls = port, True  # type: ignore[attr-defined]
        code, lines = record(engine, capsys)
    assert code == 0
    assert received(lines, say).data == WHOLE
    assert engine.asked[0][2] == "Bearer sk-key"


def test_an_engine_that_refuses_is_told_in_its_words(engine: type[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    engine.status, engine.recordings = 500, []
    code, lines = record(engine, capsys)
    assert code == 1
    with pytest.raises(ClusterError, match="refused to record: HTTP 500: Profiling is already in progress"):
        received(lines, say)


def test_it_records_for_longer_until_both_stages_are_there(
    engine: type[Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.recordings = [("DECODE",) * 12, ("EXTEND", *("DECODE",) * 47), BOTH]
    code, lines = record(engine, capsys)
    assert code == 0
    assert received(lines, say).data == WHOLE
    assert [body["num_steps"] for _, body, _ in engine.asked] == [12, 48, 192]


def test_what_came_until_the_deadline_is_kept(engine: type[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    decoding = ("DECODE",) * 12
    engine.recordings = [decoding, None]
    code, lines = record(engine, capsys, seconds=1.5)
    assert code == 0
    assert received(lines, say).data == trace(*decoding)
    assert [path for path, _, _ in engine.asked] == ["/start_profile", "/start_profile", "/stop_profile"]


def test_a_recording_that_was_stopped_is_better_than_none(
    engine: type[Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.recordings, engine.stopped = [None], ("EXTEND", "DECODE")
    code, lines = record(engine, capsys, seconds=0.2)
    assert code == 0
    assert received(lines, say).data == trace("EXTEND", "DECODE")


def test_an_engine_that_marks_no_steps_is_recorded_once(
    engine: type[Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    engine.recordings = [()]
    code, lines = record(engine, capsys)
    assert code == 0
    assert received(lines, say).data == trace()
    assert len(engine.asked) == 1


def test_without_load_nothing_goes_on_recording(engine: type[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    engine.recordings = []
    code, lines = record(engine, capsys, seconds=0)
    assert code == 1
    with pytest.raises(ClusterError, match="is there load"):
        received(lines, say)
    assert engine.asked[-1][0] == "/stop_profile"


def test_a_stream_that_is_cut_off_is_no_trace(engine: type[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    _, lines = record(engine, capsys)
    with pytest.raises(ClusterError, match="cut off"):
        received((line for number, line in enumerate(lines) if number != 3), say)


@pytest.mark.parametrize("rest", ["QUJDR", recorder.MARK + '{"event": "se'])
def test_a_line_that_is_cut_off_is_no_trace(rest: str) -> None:
    lines = [recorder.MARK + '{"event": "trace", "bytes": 6}', "QUJD", rest]
    with pytest.raises(ClusterError, match="cut off, 3 of 6 bytes"):
        received(iter(lines), say)


def test_other_words_on_the_way_do_not_spoil_the_trace(
    engine: type[Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines = record(engine, capsys)
    assert received(iter(["a plugin says hello", *lines]), say).data == WHOLE


def test_a_file_without_a_byte_is_not_whole_yet(tmp_path: Path) -> None:
    path = tmp_path / "vlm-TP-0.trace.json.gz"
    path.touch()
    assert recorder.steps_in(str(path)) is None


def test_nothing_goes_on_recording_when_nobody_listens_any_more(
    engine: type[Engine], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    engine.recordings = [None]
    monkeypatch.setattr(recorder, "say", gone)
    with pytest.raises(BrokenPipeError):
        record(engine, capsys)
    assert engine.asked[-1][0] == "/stop_profile"
    assert [path.name for path in tmp_path.iterdir()] == ["vlm-profile.lock"]


def test_a_secret_may_end_with_a_line_break(
    engine: type[Engine], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLMSERVE_API_KEY", "sk-key\n")
    assert record(engine, capsys)[0] == 0
    assert engine.asked[0][2] == "Bearer sk-key"


def started(engine: type[Engine], seconds: float = 20) -> subprocess.Popen[bytes]:
    """The program as the command starts it in a pod: its text is a line of standard input, which stays open."""
    options = {
        "port": engine.port, "tls": False, "steps": 1, "activities": ["CPU"], "with_stack": False, "seconds": seconds,  # type: ignore[attr-defined]
        "key_variable": "VLMSERVE_API_KEY",
    }  # fmt: skip
    command = [sys.executable, "-I", "-c", RUN_LINE, json.dumps(options)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(base64.b64encode(program("recorder").encode()) + b"\n")
    process.stdin.flush()
    return process


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    assert process.stdout is not None
    return (line.decode() for line in process.stdout)


def test_the_program_runs_from_one_line_of_standard_input(engine: type[Engine]) -> None:
    with started(engine) as process:
        assert received(lines_of(process), say).data == WHOLE
        assert process.wait(10) == 0


def test_when_nobody_listens_any_more_nothing_goes_on_recording(engine: type[Engine], tmp_path: Path) -> None:
    engine.recordings = [None]
    with started(engine, seconds=60) as process:
        assert "recording" in next(lines_of(process))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 1
    assert [path for path, _, _ in engine.asked] == ["/start_profile", "/stop_profile"]
    assert [path.name for path in tmp_path.iterdir()] == ["vlm-profile.lock"]


def test_two_recordings_at_once_do_not_end_each_other(engine: type[Engine]) -> None:
    engine.recordings = [None]
    with started(engine, seconds=60) as first:
        assert "recording" in next(lines_of(first))
        with started(engine) as second, pytest.raises(ClusterError, match="another command is recording this pod"):
            received(lines_of(second), say)
        assert first.stdin is not None
        first.stdin.close()
    assert [path for path, _, _ in engine.asked] == ["/start_profile", "/stop_profile"]
