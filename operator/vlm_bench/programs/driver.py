"""Runs in the load's pod: SGLang's own benchmark, run after run, with one line of JSON for each event.

Sent as text, after ``server``, into an image with SGLang: the standard library only, Python 3.10. The load, its images and its
clock are those of ``sglang.benchmark.serving``. This program keeps each request's outcome, since the benchmark counts no
failures and writes nothing if the server dies.

The argument is JSON: ``targets``, ``runs``, ``load``, ``counters`` and ``ready_seconds``, from ``job_manifest``. Only the
requested fields of a server's answers leave the pod, so no key does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sys
import tempfile
import time
import traceback
import unittest.mock
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from vlm_bench.programs.server import (
    REPORT_TOKENS,
    REQUEST_SECONDS,
    TOKEN_FIELDS,
    Server,
    fetch,
    last_line,
    token_fields,
    wait_until_ready,
)

MARK = "vlm-bench "
PROGRESS_SECONDS = 0.5
BACKEND = "sglang-oai-chat"
# A round in which more fail than this share ends the measurement: the server is gone, or refuses the load.
MOST_FAILURES = 0.5
# The container's CPU limit (cgroup v2): quota and period in microseconds, or "max".
CPU_LIMIT = "/sys/fs/cgroup/cpu.max"

_lines = itertools.count(1)


def say(event: str, **fields: Any) -> None:
    """Prints one line into the pod's log. Lines are numbered, since a log may have to be read again."""
    print(MARK + json.dumps({"event": event, "line": next(_lines), **fields}), file=sys.__stdout__, flush=True)


class Requested(int):
    """The number of tokens requested: the benchmark returns it if the server reports none."""


class Recorder:
    """Wraps SGLang's request function and keeps each request's outcome.

    ``reports_tokens``: the server reports how many tokens each answer has.
    """

    def __init__(self, send: Any, total: int, reports_tokens: bool) -> None:
        self._send, self._total, self._reports_tokens, self._printed = send, total, reports_tokens, 0.0
        self.answers: list[list[float]] = []
        self.errors: dict[str, int] = {}
        self.began, self.ended = float("inf"), 0.0
        self._cpu_began, self.cpu_seconds = 0.0, 0.0

    async def __call__(self, request_func_input: Any, pbar: Any = None) -> Any:
        began = time.perf_counter()
        if began < self.began:
            self.began, self._cpu_began = began, time.process_time()
        request_func_input.output_len = Requested(request_func_input.output_len)
        output = await self._send(request_func_input=request_func_input, pbar=pbar)
        self.ended = ended = time.perf_counter()
        self.cpu_seconds = time.process_time() - self._cpu_began
        # A server that dies or fails while it streams ends the stream, which SGLang takes for an answer.
        cut = self._reports_tokens and isinstance(output.output_len, Requested)
        if output.success and output.ttft > 0 and not cut:
            tokens = int(output.output_len)
            per_token = (output.latency - output.ttft) / (tokens - 1) if tokens > 1 else 0.0
            times = (output.ttft, per_token, output.latency)
            self.answers.append([*(round(1000 * seconds, 2) for seconds in times), tokens])
        else:
            where = "first token" if output.ttft <= 0 else "end: the server did not report its tokens"
            text = last_line(output.error) or f"the answer ended before its {where}"
            self.errors[text] = self.errors.get(text, 0) + 1
        if ended - self._printed > PROGRESS_SECONDS:
            self._printed = ended
            say("progress", done=len(self.answers) + sum(self.errors.values()), of=self._total)
        return output


@contextlib.contextmanager
def adapted(serving: Any, server: Server) -> Iterator[None]:
    """Inside, the benchmark's requests use the token fields that the server accepts, and verify its certificate as ``fetch``
    does."""
    client, fields = serving.aiohttp.ClientSession, server.target.get("fields")
    original = client.post

    def post(self: Any, url: Any, *, json: Any = None, **options: Any) -> Any:
        if fields and isinstance(json, dict):
            tokens = json.get("max_completion_tokens")
            json = {name: value for name, value in json.items() if name not in TOKEN_FIELDS[0]} | token_fields(
                tokens, fields
            )
        if server.trust is not None:
            options["ssl"] = server.trust
        return original(self, url, json=json, **options)

    def get(url: str, **options: Any) -> Any:
        """For the benchmark's request to ``/server_info``: the library ``requests`` takes only files of authorities."""
        return Answer(*fetch(url, server.key, REQUEST_SECONDS, None, server.trust))

    with contextlib.ExitStack() as patches:
        if fields or server.trust is not None:
            patches.enter_context(unittest.mock.patch.object(client, "post", post))
        if server.trust is not None:
            patches.enter_context(unittest.mock.patch.object(serving.requests, "get", get))
        yield


class Answer:
    """The part of an answer of ``requests`` that the benchmark uses."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status_code, self._body = status, body

    def json(self) -> Any:
        """Raises ValueError."""
        return json.loads(self._body)


def counters(server: Server, names: Sequence[str]) -> dict[str, float]:
    """The engine's own counters, summed over the target's pods; empty if it serves none."""
    total: dict[str, float] = {}
    for place in server.target.get("pods") or [server.url]:
        status, body = fetch(place + "/metrics", None, REQUEST_SECONDS, None, server.trust)
        text = body.decode(errors="replace") if status == 200 else ""
        for name in names:
            for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE):
                total[name] = total.get(name, 0.0) + float(value)
    return total


def settings(server: Server) -> dict[str, Any]:
    """The requested fields of ``/server_info``, and of its variables. No other field is used."""
    try:
        status, body = server.get("/server_info")
        info = json.loads(body) if status == 200 else {}
        fields = {**((info.get("internal_states") or [{}])[0].get("env_vars") or {}), **info}
    except (ValueError, TypeError, LookupError, AttributeError):
        return {}  # another server's answer at this path
    return {name: fields[name] for name in server.target.get("settings") or [] if name in fields}


def arguments(target: dict[str, Any], run: dict[str, Any], load: dict[str, Any], output: str) -> list[str]:
    """The benchmark's command line. Height comes before width. The warm-up is a run of its own, since the benchmark's would send
    the first image twice. No cache is flushed: the engine allows that only from its own pod."""
    return [
        "--backend", BACKEND, "--base-url", target["url"],
        # The processor's files; the server's name of the model goes into the requests.
        "--model", target["tokenizer"], "--tokenizer", target["tokenizer"],
        "--extra-request-body", json.dumps({"model": target["model"], **target.get("extra", REPORT_TOKENS)}),
        "--dataset-name", "image", "--image-count", str(load["images"]),
        "--image-resolution", f"{load['height']}x{load['width']}",
        "--image-format", "jpeg", "--image-content", "random",
        "--random-input-len", str(load["input_tokens"]), "--random-output-len", str(load["output_tokens"]),
        "--random-range-ratio", "1.0", "--num-prompts", str(run["requests"]),
        "--max-concurrency", str(run["concurrency"]), "--request-rate", "inf",
        "--seed", str(run["seed"]), "--warmup-requests", "0", "--ready-check-timeout-sec", "0",
        "--disable-tqdm", "--output-file", output,
    ]  # fmt: skip


def measure(serving: Any, server: Server, run: dict[str, Any], options: dict[str, Any]) -> bool:
    """One run and its line. Returns whether the measurement can go on."""
    target = server.target
    os.environ["OPENAI_API_KEY"] = server.key or ""
    say("begin", **run)
    before = counters(server, options["counters"])
    original = serving.ASYNC_REQUEST_FUNCS[BACKEND]
    recorder = Recorder(original, run["requests"], target.get("reports_tokens", True))
    serving.ASYNC_REQUEST_FUNCS[BACKEND] = recorder
    error = None
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "result.jsonl")
        sys.argv = ["sglang.benchmark.serving", *arguments(target, run, options["load"], output)]
        try:
            with contextlib.redirect_stdout(sys.stderr), adapted(serving, server):
                serving.cli_main()
        except (Exception, SystemExit):
            error = last_line(traceback.format_exc())
            traceback.print_exc()
        finally:
            serving.ASYNC_REQUEST_FUNCS[BACKEND] = original
        benchmark = _summary(output)
    failed = sum(recorder.errors.values())
    lost = run["requests"] - len(recorder.answers) - failed
    if lost:
        text = error or "the benchmark did not send it"
        recorder.errors[text] = recorder.errors.get(text, 0) + lost
    after = counters(server, options["counters"])
    say(
        "round", **run,
        seconds=max(recorder.ended - recorder.began, 0.0) if recorder.answers or failed else 0.0,
        answers=recorder.answers, errors=recorder.errors,
        asked_tokens=options["load"]["output_tokens"], reports_tokens=target.get("reports_tokens", True),
        cpu_seconds=round(recorder.cpu_seconds, 3), cpu_cores=cpu_cores(),
        counters={n: after[n] - before[n] for n in after if n in before and after[n] >= before[n]},
        settings=settings(server), benchmark=benchmark,
    )  # fmt: skip
    return bool(len(recorder.answers) >= run["requests"] * MOST_FAILURES)


def cpu_cores() -> float:
    """The cores that the program can use: one, since one thread sends all requests, or less by its container's limit."""
    with contextlib.suppress(OSError, ValueError), open(CPU_LIMIT) as file:
        quota, period = map(int, file.read().split())
        return min(1.0, quota / period)
    return 1.0


def _summary(path: str) -> dict[str, Any]:
    """The benchmark's own results: the numbers only, so no text of a server."""
    try:
        with open(path) as file:
            result = json.loads(file.readlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return {name: value for name, value in result.items() if isinstance(value, int | float) and value == value}


def main(text: str) -> int:
    """Runs the whole schedule. Exit code 0 even if requests failed, which the lines say."""
    options = json.loads(text)
    targets = options["targets"]
    hosts = ",".join(sorted({urlsplit(t["url"]).hostname or "" for t in targets}))
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), hosts]))
    try:
        from sglang.benchmark import serving
    except ImportError as error:
        say(
            "failed",
            message=f"the image has no sglang.benchmark.serving ({error}): use SGLang 0.5.15 or later (--image)",
        )
        return 1
    servers = [Server(target) for target in targets]
    for server in servers:
        if why := wait_until_ready(server, options["ready_seconds"]):
            say("failed", message=why)
            return 1
    plain = [target["name"] for target in targets if "ignore_eos" not in target.get("fields", TOKEN_FIELDS[0])]
    say("ready", models=[t["model"] for t in targets], plain=plain)
    for run in options["runs"]:
        if not measure(serving, servers[run["target"]], run, options):
            say("end", complete=False)
            return 0
    say("end", complete=True)
    return 0
