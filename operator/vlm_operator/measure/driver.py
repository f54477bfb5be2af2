"""Runs inside the Job's pod: SGLang's own benchmark, run after run, and one JSON object a line about it.

This file is sent as text, with ``asking.py`` and ``readiness.py`` (see ``programs.py``), into an image that holds SGLang
and nothing of ours, so the three import the standard library, SGLang and each other only, and work on Python 3.10. The
load, its images and its clock are those of ``sglang.benchmark.serving``; what is added here is that each request's outcome
is kept, since the benchmark itself counts no failures and writes nothing at all when the server dies below it.

The one argument is JSON: ``targets``, ``runs``, ``load``, ``counters`` and ``ready_seconds``, as ``job.py`` writes it.
Of what servers say only the asked-for fields leave the pod, so no key can.
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

from vlm_operator.measure.asking import ASK_SECONDS, Server, fetch, last_line
from vlm_operator.measure.readiness import TELL_TOKENS, WORDS, wait_until_ready, worded

MARK = "vlm-bench "
PROGRESS_SECONDS = 0.5
BACKEND = "sglang-oai-chat"
# A round in which more fail than this share ends the measurement: the server is gone, or refuses the load.
MOST_FAILURES = 0.5
# How much of a core the program may use (cgroup v2): quota and period in microseconds, or "max".
CPU_LIMIT = "/sys/fs/cgroup/cpu.max"

_lines = itertools.count(1)


def say(event: str, **fields: Any) -> None:
    """One line for whoever reads the pod's log. Lines are numbered, since a log may have to be read again."""
    print(MARK + json.dumps({"event": event, "line": next(_lines), **fields}), file=sys.__stdout__, flush=True)


class Asked(int):
    """Tokens that were asked for: what the benchmark hands back where the server told of none."""


class Recorder:
    """Stands before SGLang's request function and keeps what became of each request.

    ``told``: the server says how many tokens each of its answers has.
    """

    def __init__(self, send: Any, total: int, told: bool) -> None:
        self._send, self._total, self._told, self._said = send, total, told, 0.0
        self.answers: list[list[float]] = []
        self.errors: dict[str, int] = {}
        self.began, self.ended = float("inf"), 0.0
        self._cpu_began, self.cpu_seconds = 0.0, 0.0

    async def __call__(self, request_func_input: Any, pbar: Any = None) -> Any:
        began = time.perf_counter()
        if began < self.began:
            self.began, self._cpu_began = began, time.process_time()
        request_func_input.output_len = Asked(request_func_input.output_len)
        output = await self._send(request_func_input=request_func_input, pbar=pbar)
        self.ended = ended = time.perf_counter()
        self.cpu_seconds = time.process_time() - self._cpu_began
        # A server that dies while it streams, or tells an error there, ends the stream: SGLang takes that for an answer.
        cut = self._told and isinstance(output.output_len, Asked)
        if output.success and output.ttft > 0 and not cut:
            tokens = int(output.output_len)
            per_token = (output.latency - output.ttft) / (tokens - 1) if tokens > 1 else 0.0
            times = (output.ttft, per_token, output.latency)
            self.answers.append([*(round(1000 * seconds, 2) for seconds in times), tokens])
        else:
            where = "first token" if output.ttft <= 0 else "end: the server did not tell its tokens"
            text = last_line(output.error) or f"the answer ended before its {where}"
            self.errors[text] = self.errors.get(text, 0) + 1
        if ended - self._said > PROGRESS_SECONDS:
            self._said = ended
            say("progress", done=len(self.answers) + sum(self.errors.values()), of=self._total)
        return output


@contextlib.contextmanager
def asked_with(serving: Any, server: Server) -> Iterator[None]:
    """Inside, the benchmark's requests say how many tokens they want in the words that the server knows, and check its
    certificate as our own questions do."""
    client, fields = serving.aiohttp.ClientSession, server.target.get("fields")
    original = client.post

    def post(self: Any, url: Any, *, json: Any = None, **options: Any) -> Any:
        if fields and isinstance(json, dict):
            tokens = json.get("max_completion_tokens")
            json = {name: value for name, value in json.items() if name not in WORDS[0]} | worded(tokens, fields)
        if server.trust is not None:
            options["ssl"] = server.trust
        return original(self, url, json=json, **options)

    def get(url: str, **options: Any) -> Any:
        """For the library ``requests``, which takes files of authorities only: the benchmark's look at ``/server_info``."""
        return Answer(*fetch(url, server.key, ASK_SECONDS, None, server.trust))

    with contextlib.ExitStack() as patches:
        if fields or server.trust is not None:
            patches.enter_context(unittest.mock.patch.object(client, "post", post))
        if server.trust is not None:
            patches.enter_context(unittest.mock.patch.object(serving.requests, "get", get))
        yield


class Answer:
    """As much of an answer of ``requests`` as the benchmark looks at."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status_code, self._body = status, body

    def json(self) -> Any:
        """Raises ValueError for what is none."""
        return json.loads(self._body)


def counters(server: Server, names: Sequence[str]) -> dict[str, float]:
    """The engine's own counters, summed over the target's pods. Empty where it serves none."""
    found: dict[str, float] = {}
    for place in server.target.get("pods") or [server.url]:
        status, body = fetch(place + "/metrics", None, ASK_SECONDS, None, server.trust)
        text = body.decode(errors="replace") if status == 200 else ""
        for name in names:
            for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE):
                found[name] = found.get(name, 0.0) + float(value)
    return found


def settings(server: Server) -> dict[str, Any]:
    """The asked-for fields of ``/server_info``, and the variables that it shows. No other field is looked at."""
    try:
        status, body = server.get("/server_info")
        info = json.loads(body) if status == 200 else {}
        told = {**((info.get("internal_states") or [{}])[0].get("env_vars") or {}), **info}
    except (ValueError, TypeError, LookupError, AttributeError):
        return {}  # another server's idea of this path
    return {name: told[name] for name in server.target.get("settings") or [] if name in told}


def arguments(target: dict[str, Any], run: dict[str, Any], load: dict[str, Any], output: str) -> list[str]:
    """The benchmark's command line. Height comes before width; the warm-up is a run of its own, since the benchmark's
    would send the first image twice; and no cache is flushed, which the engine allows nobody but its own pod."""
    return [
        "--backend", BACKEND, "--base-url", target["url"],
        # The processor's files; the name that the server knows goes into the requests.
        "--model", target["tokenizer"], "--tokenizer", target["tokenizer"],
        "--extra-request-body", json.dumps({"model": target["model"], **target.get("extra", TELL_TOKENS)}),
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
    """One run, told in one line. Returns whether the measurement can go on."""
    target = server.target
    os.environ["OPENAI_API_KEY"] = server.key or ""
    say("begin", **run)
    before = counters(server, options["counters"])
    original = serving.ASYNC_REQUEST_FUNCS[BACKEND]
    recorder = Recorder(original, run["requests"], target.get("told", True))
    serving.ASYNC_REQUEST_FUNCS[BACKEND] = recorder
    error = None
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "result.jsonl")
        sys.argv = ["sglang.benchmark.serving", *arguments(target, run, options["load"], output)]
        try:
            with contextlib.redirect_stdout(sys.stderr), asked_with(serving, server):
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
        asked_tokens=options["load"]["output_tokens"], tokens_told=target.get("told", True),
        cpu_seconds=round(recorder.cpu_seconds, 3), cpu_cores=cpu_cores(),
        counters={n: after[n] - before[n] for n in after if n in before and after[n] >= before[n]},
        settings=settings(server), benchmark=benchmark,
    )  # fmt: skip
    return bool(len(recorder.answers) >= run["requests"] * MOST_FAILURES)


def cpu_cores() -> float:
    """The cores that the program can use: one, since its requests are one thread's, or less by its container's limit."""
    with contextlib.suppress(OSError, ValueError), open(CPU_LIMIT) as file:
        quota, period = map(int, file.read().split())
        return min(1.0, quota / period)
    return 1.0


def _summary(path: str) -> dict[str, Any]:
    """The benchmark's own numbers: those of them that are numbers, so nothing that a server said of itself."""
    try:
        with open(path) as file:
            result = json.loads(file.readlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return {name: value for name, value in result.items() if isinstance(value, int | float) and value == value}


def main(text: str) -> int:
    """Runs all that the argument asks for. Exit code 0 also where requests failed: the lines say so."""
    options = json.loads(text)
    targets = options["targets"]
    hosts = ",".join(sorted({urlsplit(t["url"]).hostname or "" for t in targets}))
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), hosts]))
    try:
        from sglang.benchmark import serving
    except ImportError as error:
        say("failed", message=f"the image has no sglang.benchmark.serving ({error}): it came with SGLang 0.5.15")
        return 1
    servers = [Server(target) for target in targets]
    for server in servers:
        if why := wait_until_ready(server, options["ready_seconds"]):
            say("failed", message=why)
            return 1
    plain = [target["name"] for target in targets if "ignore_eos" not in target.get("fields", WORDS[0])]
    say("ready", models=[t["model"] for t in targets], plain=plain)
    for run in options["runs"]:
        if not measure(serving, servers[run["target"]], run, options):
            say("end", complete=False)
            return 0
    say("end", complete=True)
    return 0
