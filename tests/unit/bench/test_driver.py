"""The program in the Job's pod, with a stand-in for SGLang's benchmark and a small server in the engine's place."""

from __future__ import annotations

import argparse
import asyncio
import http.server
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import aiohttp
import pytest

from vlm_bench.programs import driver, server
from vlm_bench.programs.server import Server, refusal
from vlm_bench.statistics.rounds import Round, read_line, round_of

KEY = "sk-must-not-be-seen"
Drive = Callable[..., Any]


class Engine(http.server.BaseHTTPRequestHandler):
    """Lists a model, tells its settings and its keys, and counts."""

    images = 0

    def do_GET(self) -> None:
        info = {"api_key": KEY, "page_size": 16, "internal_states": [{"env_vars": {"SGLANG_VLM_CACHE_SIZE_MB": "0"}}]}
        text = {
            "/v1/models": json.dumps({"data": [{"id": "served"}]}),
            "/server_info": json.dumps(info),
            "/metrics": f'vlmserve_images_received_total{{pid="1"}} {type(self).images}.0\n',
        }[self.path]
        given = self.headers.get("Authorization")
        allowed = given == f"Bearer {KEY}" or self.path == "/metrics"
        self.send_response(200 if allowed else 401)
        self.end_headers()
        if not allowed:
            text = json.dumps({"error": {"message": f"no such key: {str(given).removeprefix('Bearer ')}"}})
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("BENCH_KEY_0", KEY)
    monkeypatch.setattr(Engine, "images", 0)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@dataclass
class Request:
    """SGLang's RequestFuncInput, as far as it is touched."""

    number: int
    output_len: int = 11


@dataclass
class Output:
    """SGLang's RequestFuncOutput, as far as it is read."""

    success: bool
    ttft: float = 0.1
    latency: float = 0.3
    output_len: int = 11
    error: str = ""


class Benchmark(ModuleType):
    """A stand-in for sglang.benchmark.serving: sends as many requests as asked for through the same registry."""

    def __init__(self, outcomes: dict[int, Output], dies_at_its_end: bool = False) -> None:
        super().__init__("sglang.benchmark.serving")
        self.outcomes, self.dies, self.seen = outcomes, dies_at_its_end, []  # type: ignore[var-annotated]
        self.ASYNC_REQUEST_FUNCS = {driver.BACKEND: self.send}
        self.aiohttp, self.requests = aiohttp, SimpleNamespace(get=None)

    async def send(self, request_func_input: Request, pbar: Any = None) -> Output:
        Engine.images += 1
        output = self.outcomes.get(request_func_input.number, Output(True))
        # What SGLang's own function does where no chunk of the stream had a "usage".
        return replace(output, output_len=request_func_input.output_len) if output.output_len < 0 else output

    def cli_main(self) -> None:
        parser = argparse.ArgumentParser()
        for flag in ("--num-prompts", "--seed", "--image-resolution", "--extra-request-body"):
            parser.add_argument(flag)
        given, _ = parser.parse_known_args(sys.argv[1:])
        self.seen.append(given)

        async def run() -> None:
            send = self.ASYNC_REQUEST_FUNCS[driver.BACKEND]
            await asyncio.gather(*(send(request_func_input=Request(n)) for n in range(int(given.num_prompts))))

        asyncio.run(run())
        if self.dies:
            raise ConnectionError("server_info: connection refused")


def drive_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], benchmark: Benchmark, url: str, **options: Any
) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, what was told, and everything that was printed."""
    package = ModuleType("sglang.benchmark")
    package.serving = benchmark  # type: ignore[attr-defined]
    for name, module in (("sglang", ModuleType("sglang")), ("sglang.benchmark", package)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "sglang.benchmark.serving", benchmark)
    monkeypatch.setattr(sys, "argv", ["driver"])
    monkeypatch.setattr(sys, "__stdout__", sys.stdout)
    run = {"number": 0, "round": 1, "target": 0, "concurrency": 4, "requests": 8, "seed": 5}
    target = {
        "url": url, "tokenizer": "/models/m", "model": None, "key_variable": "BENCH_KEY_0", "pods": [],
        "settings": ["page_size", "SGLANG_VLM_CACHE_SIZE_MB"],
    }  # fmt: skip
    given = {
        "targets": [target], "runs": [run, {**run, "number": 1, "round": 2, "seed": 6}], "ready_seconds": 2,
        "load": {"images": 1, "width": 640, "height": 480, "input_tokens": 16, "output_tokens": 11},
        "counters": ["vlmserve_images_received_total"], **options,
    }  # fmt: skip
    code = driver.main(json.dumps(given))
    printed = "".join(capsys.readouterr())
    return code, [event for line in printed.splitlines() if (event := read_line(line)) is not None], printed


def rounds_of(events: list[dict[str, Any]]) -> list[Round]:
    return [round_of(event) for event in events if event["event"] == "round"]


def test_rounds_are_told_with_what_the_engine_said(url: str, drive: Drive) -> None:
    benchmark = Benchmark({})
    code, events, printed = drive(
        benchmark,
        url,
    )
    assert code == 0
    assert events[-1]["complete"]
    one, two = rounds_of(events)
    assert (len(one.answers), one.failures) == (8, 0)
    assert one.answers[0].ttft_ms == 100
    assert one.answers[0].tpot_ms == 20
    assert one.settings == {"page_size": 16, "SGLANG_VLM_CACHE_SIZE_MB": "0"}
    assert one.counters == two.counters == {"vlmserve_images_received_total": 8}
    assert [given.seed for given in benchmark.seen] == ["5", "6"]
    assert benchmark.seen[0].image_resolution == "480x640"
    assert json.loads(benchmark.seen[0].extra_request_body) == {
        "model": "served",
        "stream_options": {"include_usage": True},
    }
    assert KEY not in printed
    assert [event["line"] for event in events] == sorted({event["line"] for event in events})


def test_failures_are_counted_by_what_went_wrong(url: str, drive: Drive) -> None:
    refused = Output(False, error="Traceback\n  File x\naiohttp.ClientConnectorError: refused\n")
    _, events, _ = drive(
        Benchmark({1: refused, 2: refused, 3: Output(True, ttft=0.0)}),
        url,
    )
    assert rounds_of(events)[0].errors == {
        "aiohttp.ClientConnectorError: refused": 2,
        "the answer ended before its first token": 1,
    }
    assert events[-1]["complete"]


def test_a_stream_that_ends_without_having_told_its_tokens_is_no_answer(url: str, drive: Drive) -> None:
    cut, short = Output(True, output_len=-1), Output(True, output_len=4)
    _, events, _ = drive(
        Benchmark({1: cut, 2: short}),
        url,
    )
    first = rounds_of(events)[0]
    assert first.errors == {"the answer ended before its end: the server did not report its tokens": 1}
    assert (first.asked_tokens, first.short_answers, first.reports_tokens) == (11, 1, True)
    assert sorted(answer.tokens for answer in first.answers) == [4, *[11] * 6]


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 1.0), ("50000 100000", 0.5), ("400000 100000", 1.0), ("", 1.0)]
)
def test_the_cpu_time_of_the_load_is_told_beside_what_it_may_use(
    limit: str, cores: float, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drive: Drive
) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(driver, "CPU_LIMIT", str(tmp_path / "cpu.max"))
    benchmark = Benchmark({})

    async def busy(request_func_input: Request, pbar: Any = None) -> Output:
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass
        return Output(True)

    benchmark.ASYNC_REQUEST_FUNCS[driver.BACKEND] = busy  # type: ignore[assignment]
    _, events, _ = drive(
        benchmark,
        url,
    )
    told = next(event for event in events if event["event"] == "round")
    assert told["cpu_cores"] == cores
    assert told["cpu_seconds"] >= 0.08
    assert rounds_of(events)[0].cpu_share == pytest.approx(min(1.0, told["cpu_seconds"] / told["seconds"] / cores))


def test_an_engine_that_is_gone_ends_the_measurement_with_its_failures_counted(url: str, drive: Drive) -> None:
    gone = dict.fromkeys(range(3, 8), Output(False, error="refused"))
    code, events, _ = drive(
        Benchmark(gone, dies_at_its_end=True),
        url,
    )
    [only] = rounds_of(events)
    assert (code, len(only.answers), only.errors) == (0, 3, {"refused": 5})
    assert not events[-1]["complete"]


def test_a_benchmark_that_sends_nothing_says_why(url: str, monkeypatch: pytest.MonkeyPatch, drive: Drive) -> None:
    benchmark = Benchmark({})
    monkeypatch.setattr(benchmark, "cli_main", lambda: sys.exit("no processor in /models/m"))
    _, events, _ = drive(
        benchmark,
        url,
    )
    assert rounds_of(events)[0].errors == {"SystemExit: no processor in /models/m": 8}


def test_a_server_that_wants_another_key_is_named_and_the_key_is_not(
    url: str, monkeypatch: pytest.MonkeyPatch, drive: Drive
) -> None:
    monkeypatch.setenv("BENCH_KEY_0", "sk-of-another-server")
    code, events, printed = drive(Benchmark({}), url, ready_seconds=600)
    assert code == 1
    assert events[-1]["event"] == "failed"
    assert f"{url}/v1/models: HTTP 401: no such key: ... (does it need another key?)" in events[-1]["message"]
    assert "sk-of-another-server" not in printed


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Sends whoever asks to another server."""

    target = ""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.target + self.path)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_server_that_sends_the_load_to_another_one_does_not_give_it_the_key(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elsewhere, "target", url)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        found = Server({"url": f"http://127.0.0.1:{server.server_port}", "key_variable": "BENCH_KEY_0"})
        assert found.get("/v1/models") == (401, b'{"error": {"message": "no such key: None"}}')
        assert Server({"url": url, "key_variable": "BENCH_KEY_0"}).get("/v1/models")[0] == 200
        server.shutdown()


def test_a_secret_may_end_with_a_line_break(url: str, monkeypatch: pytest.MonkeyPatch, drive: Drive) -> None:
    monkeypatch.setenv("BENCH_KEY_0", f"{KEY}\n")
    code, events, _ = drive(
        Benchmark({}),
        url,
    )
    assert (code, events[-1]["event"]) == (0, "end")


def test_a_key_that_no_header_takes_is_not_shown(url: str, monkeypatch: pytest.MonkeyPatch, drive: Drive) -> None:
    monkeypatch.setenv("BENCH_KEY_0", "sk-one\nsk-two")
    code, events, printed = drive(Benchmark({}), url)
    assert (code, events[-1]["event"]) == (1, "failed")
    assert "sk-one" not in printed
    assert "sk-two" not in printed


def test_what_another_server_tells_of_itself_may_be_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "get", lambda *_: (200, b"null"))
    assert driver.settings(Server({"url": "http://other", "settings": ["page_size"]})) == {}


def test_a_server_that_does_not_answer_is_named(drive: Drive) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        code, events, _ = drive(Benchmark({}), url, ready_seconds=0)
    assert code == 1
    assert f"{url}/v1/models: " in events[-1]["message"]
    assert "refused" in events[-1]["message"]
    assert "(for 0 s)" in events[-1]["message"]


class Other(http.server.BaseHTTPRequestHandler):
    """A server that is not ours: it lists no models, and knows only some fields of a request."""

    asked: list[dict[str, Any]]
    known: tuple[str, ...]
    takes_options = True
    counts = True
    starts_after = 0

    def do_GET(self) -> None:
        self._answer(500, b"Internal Server Error")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append(body)
        fields = {"ignore_eos", "max_completion_tokens", "max_tokens", "stream_options"}
        unknown = sorted(fields & body.keys() - {*self.known, *(["stream_options"] if self.takes_options else [])})
        if len(self.asked) <= self.starts_after:
            self._answer(503, b"still loading")
        elif body.get("model", "tiny") != "tiny":
            self._answer(404, b'{"error": {"message": "no such model"}}')
        elif unknown:
            self._answer(422, json.dumps({"detail": f"unexpected: {unknown}"}).encode())
        else:
            told = self.counts and body.get("stream_options") == {"include_usage": True}
            usage = b'data: {"choices": [], "usage": {"completion_tokens": 1}}\n\n' if told else b""
            self._answer(200, b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\n' + usage + b"data: [DONE]\n\n")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Other, "asked", [], raising=False)
    monkeypatch.setattr(Other, "known", ("max_completion_tokens", "max_tokens"), raising=False)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def theirs(url: str, **changes: Any) -> list[dict[str, Any]]:
    target = {"name": "theirs", "url": url, "tokenizer": "m", "model": "tiny", "key_variable": None, "unknown": True}
    return [target | changes]


@pytest.mark.parametrize(
    "known",
    [
        ("ignore_eos", "max_completion_tokens", "max_tokens"),
        ("max_completion_tokens", "max_tokens"),
        ("max_tokens",),
        ("max_completion_tokens",),
    ],
)
def test_another_server_is_asked_in_the_words_that_it_knows(
    known: tuple[str, ...], other: str, monkeypatch: pytest.MonkeyPatch, drive: Drive
) -> None:
    monkeypatch.setattr(Other, "known", known)
    benchmark = Benchmark({})

    async def post(request_func_input: Request, pbar: Any = None) -> Output:
        body = {"messages": [], "max_completion_tokens": 16, "ignore_eos": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{other}/v1/chat/completions", json=body) as answer,
        ):
            return Output(answer.status == 200)

    benchmark.ASYNC_REQUEST_FUNCS[driver.BACKEND] = post  # type: ignore[assignment]
    _, events, _ = drive(benchmark, other, targets=theirs(other))
    assert events[0]["plain"] == ([] if "ignore_eos" in known else ["theirs"])
    assert [each.failures for each in rounds_of(events)] == [0, 0]
    wanted = {name: True if name == "ignore_eos" else 16 for name in known}
    assert Other.asked[-16:] == [{"messages": [], **wanted}] * 16
    assert aiohttp.ClientSession.post.__module__ == "aiohttp.client"


@pytest.mark.parametrize(("takes", "counts"), [(True, True), (True, False), (False, False)])
def test_another_server_is_asked_for_its_tokens_and_where_it_tells_none_that_is_said(
    takes: bool, counts: bool, other: str, monkeypatch: pytest.MonkeyPatch, drive: Drive
) -> None:
    """vLLM takes the option and tells; transformers serve ignores it and tells; others refuse it, or ignore it in silence."""
    monkeypatch.setattr(Other, "takes_options", takes)
    monkeypatch.setattr(Other, "counts", counts)
    benchmark = Benchmark({1: Output(True, output_len=-1)})
    _, events, _ = drive(benchmark, other, targets=theirs(other))
    asked = {"stream_options": {"include_usage": True}} if takes else {}
    assert json.loads(benchmark.seen[0].extra_request_body) == {"model": "tiny", **asked}
    first = rounds_of(events)[0]
    assert (first.reports_tokens, first.failures) == (counts, 1 if counts else 0)
    assert sum(answer.tokens for answer in first.answers) == (77 if counts else 88)


def test_another_server_that_still_starts_is_waited_for(
    other: str, monkeypatch: pytest.MonkeyPatch, drive: Drive
) -> None:
    monkeypatch.setattr(server.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(Other, "starts_after", 2)
    _, events, _ = drive(Benchmark({}), other, targets=theirs(other), ready_seconds=60)
    assert events[-1]["event"] == "end"
    assert events[-1]["complete"]


@pytest.mark.parametrize(
    ("changes", "known", "said"),
    [
        ({"model": None}, (), "/v1/models: HTTP 500: Internal Server Error: name its model (--against-model)"),
        ({"model": "huge"}, (), "/v1/chat/completions: HTTP 404: no such model"),
        ({}, (), "HTTP 422: unexpected: ['max_tokens']; HTTP 422: unexpected: ['max_completion_tokens']"),
    ],
)
def test_what_another_server_says_against_it_is_told_at_once(
    changes: dict[str, Any],
    known: tuple[str, ...],
    said: str,
    other: str,
    monkeypatch: pytest.MonkeyPatch,
    drive: Drive,
) -> None:
    monkeypatch.setattr(Other, "known", known)
    code, events, _ = drive(Benchmark({}), other, targets=theirs(other, **changes), ready_seconds=600)
    assert code == 1
    assert events[-1]["event"] == "failed"
    assert said in events[-1]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "too long", "type": "BadRequest", "code": 400}}',
        b'{"error": "too long"}',
        b'{"object": "error", "message": "too long"}',
        b'{"detail": "too long"}',
        b"<html>\ntoo long\n",
        b"<!DOCTYPE html>\n<html><head><title>too\n long</title></head>\n<body><h1>nginx</h1></body>\n</html>\n",
        b"<html>\n<head><style>a { color: red }</style></head>\n<body>\n<p>too\n<b>long</b></p>\n</body>\n</html>\n",
    ],
)
def test_a_refusal_is_read_in_every_shape_that_servers_give_it(body: bytes) -> None:
    assert refusal(400, body) == "HTTP 400: too long"


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"data": []}', b'{"data": [{}]}'])
def test_a_list_without_a_model_is_none(body: bytes) -> None:
    assert server.first_model(body) is None
