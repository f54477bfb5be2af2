"""Runs inside the Job's pod: SGLang's own benchmark, run after run, and one JSON object a line about it.

This file is sent as text (``python3 -c``) into an image that holds SGLang and nothing of ours, so it imports the
standard library and SGLang only, and works on Python 3.10. The load, its images and its clock are those of
``sglang.benchmark.serving``; what is added here is that each request's outcome is kept, since the benchmark itself
counts no failures and writes nothing at all when the server dies below it.

The one argument is JSON: ``targets``, ``runs``, ``load``, ``counters`` and ``ready_seconds``, as ``job.py`` writes it.
Of what servers say only the asked-for fields leave the pod, so no key can.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import itertools
import json
import os
import re
import sys
import tempfile
import time
import traceback
import unittest.mock
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

MARK = "vlm-bench "
ERROR_LENGTH = 300
PROGRESS_SECONDS = 0.5
KEYS = "BENCH_KEY_"  # how the variables begin that hold the servers' keys
BACKEND = "sglang-oai-chat"
# A round in which more fail than this share ends the measurement: the server is gone, or refuses the load.
MOST_FAILURES = 0.5
ASK_SECONDS = 10
# What a proxy says instead of the server that it stands before.
PAGE = re.compile(r"<(!doctype|html|head|body)\b", re.IGNORECASE)
TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
UNSEEN = re.compile(r"<(script|style)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
TAG = re.compile(r"<[!/a-z][^>]*>", re.IGNORECASE)
# The first request may wait for a model to be loaded or for kernels to be compiled.
FIRST_ANSWER_SECONDS = 600
# No answer, too many requests, and what stands before a server that starts.
NOT_READY = (0, 408, 429, 502, 503, 504)
# How a request may say how many tokens it wants. OpenAI's API knows no ignore_eos and calls max_tokens deprecated; some
# servers know max_tokens only, and ignore or refuse the other; OpenAI's newest models refuse max_tokens.
WORDS = (
    ("ignore_eos", "max_completion_tokens", "max_tokens"),
    ("max_completion_tokens", "max_tokens"),
    ("max_tokens",),
    ("max_completion_tokens",),
)

# Without it a stream tells no tokens, and SGLang's benchmark takes an answer to have as many as were asked for.
TELL_TOKENS = {"stream_options": {"include_usage": True}}
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
            text = _last_line(output.error) or f"the answer ended before its {where}"
            self.errors[text] = self.errors.get(text, 0) + 1
        if ended - self._said > PROGRESS_SECONDS:
            self._said = ended
            say("progress", done=len(self.answers) + sum(self.errors.values()), of=self._total)
        return output


def _last_line(text: str) -> str:
    """Where a traceback says what it is about; of a proxy's page the title, or else its text. Servers may repeat the key
    that they refuse."""
    for name, key in os.environ.items():
        if key.strip() and name.startswith(KEYS):
            # As it stands in plain text, in Python's repr and in JSON.
            for spelling in (key, key.strip(), repr(key.strip())[1:-1], json.dumps(key.strip())[1:-1]):
                text = (text or "").replace(spelling, "...")
    text = text or ""
    if PAGE.search(text):
        title = TITLE.search(text)
        said = title[1] if title and title[1].strip() else TAG.sub(" ", UNSEEN.sub(" ", text))
        return " ".join(html.unescape(said).split())[:ERROR_LENGTH]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:ERROR_LENGTH] if lines else ""


def key_of(target: dict[str, Any]) -> str | None:
    """The server's key. The line break that an editor leaves at the end of a Secret is no part of it."""
    return os.environ.get(target.get("key_variable") or "", "").strip() or None


def fetch(url: str, key: str | None, seconds: float, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    """The status and what was said; 0 and the reason where there is no answer. A body makes it a POST.

    No proxy: servers are in the cluster, or told by their URL.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None
    if body is not None:
        headers["Content-Type"], data = "application/json", json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=seconds) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        try:
            with error:
                return error.code, error.read(65536)
        except (OSError, http.client.HTTPException):
            return error.code, str(error.reason).encode()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return 0, str(getattr(error, "reason", error)).encode()


def ask(url: str, key: str | None) -> bytes | None:
    """A GET; None where there is no answer, or another than 200."""
    status, body = fetch(url, key, ASK_SECONDS)
    return body if status == 200 else None


def said(status: int, body: bytes) -> str:
    """A refusal in one line. Servers that speak OpenAI's API tell it in several shapes."""
    text = body.decode(errors="replace")
    try:
        found = json.loads(text)
        for name in ("error", "detail", "message"):
            found = found.get(name, found) if isinstance(found, dict) else found
        text = found if isinstance(found, str) else json.dumps(found)
    except ValueError:
        pass
    return ": ".join(filter(None, [f"HTTP {status}" if status else "", _last_line(text)]))


def wait_until_ready(target: dict[str, Any], key: str | None, seconds: float) -> str | None:
    """Finds out what the server calls its model, and how a server that is not ours wants to be asked.

    Waits so long for one that is not ready yet. Why it cannot be measured; None where it can.
    """
    deadline = time.monotonic() + seconds
    while True:
        soon, why = _look(target, key)
        if not why:
            return None
        if not soon:
            return why
        if time.monotonic() > deadline:
            return f"{why}; so it was for {seconds} s"
        time.sleep(1)


def _look(target: dict[str, Any], key: str | None) -> tuple[bool, str]:
    """Whether it may be otherwise soon, and what stands against it; an empty text where nothing does."""
    if not target.get("unknown") or not target.get("model"):
        status, body = fetch(target["url"] + "/v1/models", key, ASK_SECONDS)
        if status != 200:
            nameless = target.get("unknown") and status not in (*NOT_READY, 401, 403)
            advice = ": name its model (--against-model)" if nameless else ""
            return status in NOT_READY, f"{target['url']}/v1/models: {said(status, body)}{_about(status)}{advice}"
        target["model"] = target.get("model") or _first_model(body)
        if not target["model"]:
            return False, f"{target['url']} lists no model: name one (--against-model)"
    return _question(target, key) if target.get("unknown") else (False, "")


def _first_model(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return None


def _about(status: int) -> str:
    return " (does it want another key?)" if status in (401, 403) else ""


def _question(target: dict[str, Any], key: str | None) -> tuple[bool, str]:
    """Asks for one token as the load does, in the benchmark's words and then in fewer, until the server takes them.

    What it takes, and whether it told its tokens, is kept in ``target``.
    """
    url = target["url"] + "/v1/chat/completions"
    refusals: dict[str, None] = {}
    question = {"model": target["model"], "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    for fields, extra in itertools.product(WORDS, (TELL_TOKENS, {})):
        status, answer = fetch(url, key, FIRST_ANSWER_SECONDS, {**question, **worded(1, fields), **extra})
        if status == 200:
            target.update(fields=fields, extra=extra, told=tells_tokens(answer))
            return False, ""
        refusals[said(status, answer) + _about(status)] = None
        if status not in (400, 422):
            return status in NOT_READY, f"{url}: {list(refusals)[-1]}"
    return False, f"{url} refuses a short question: {'; '.join(refusals)}"


def tells_tokens(stream: bytes) -> bool:
    """Whether a streamed answer says how many tokens it has, as OpenAI's last chunk does."""
    for line in stream.splitlines():
        try:
            usage = json.loads(line.removeprefix(b"data:")).get("usage") or {}
            if isinstance(usage.get("completion_tokens"), int):
                return True
        except (ValueError, AttributeError):
            continue  # an empty line, the mark of the end, a server's own idea of a chunk
    return False


def worded(tokens: Any, fields: Sequence[str]) -> dict[str, Any]:
    """How many tokens are wanted, in those fields."""
    return {name: True if name == "ignore_eos" else tokens for name in fields}


def asked_with(fields: Sequence[str], session: Any) -> AbstractContextManager[Any]:
    """Inside, requests say how many tokens they want in those fields and in no others. ``session``: aiohttp's class."""
    original = session.post

    def post(self: Any, url: Any, *, json: Any = None, **options: Any) -> Any:
        if isinstance(json, dict):
            tokens = json.get("max_completion_tokens")
            json = {name: value for name, value in json.items() if name not in WORDS[0]} | worded(tokens, fields)
        return original(self, url, json=json, **options)

    return unittest.mock.patch.object(session, "post", post)


def counters(target: dict[str, Any], names: list[str]) -> dict[str, float]:
    """The engine's own counters, summed over the target's pods. Empty where it serves none."""
    found: dict[str, float] = {}
    for place in target.get("pods") or [target["url"]]:
        text = (ask(place + "/metrics", None) or b"").decode(errors="replace")
        for name in names:
            for value in re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE):
                found[name] = found.get(name, 0.0) + float(value)
    return found


def settings(target: dict[str, Any], key: str | None) -> dict[str, Any]:
    """The asked-for fields of ``/server_info``, and the variables that it shows. No other field is looked at."""
    try:
        info = json.loads(ask(target["url"] + "/server_info", key) or b"{}")
        told = {**((info.get("internal_states") or [{}])[0].get("env_vars") or {}), **info}
    except (ValueError, TypeError, LookupError, AttributeError):
        return {}  # another server's idea of this path
    return {name: told[name] for name in target.get("settings") or [] if name in told}


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


def measure(serving: Any, target: dict[str, Any], run: dict[str, Any], options: dict[str, Any]) -> bool:
    """One run, told in one line. Returns whether the measurement can go on."""
    key = key_of(target)
    os.environ["OPENAI_API_KEY"] = key or ""
    say("begin", **run)
    before = counters(target, options["counters"])
    original = serving.ASYNC_REQUEST_FUNCS[BACKEND]
    recorder = Recorder(original, run["requests"], target.get("told", True))
    serving.ASYNC_REQUEST_FUNCS[BACKEND] = recorder
    error = None
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "result.jsonl")
        sys.argv = ["sglang.benchmark.serving", *arguments(target, run, options["load"], output)]
        try:
            fields = target.get("fields")
            plain = asked_with(fields, serving.aiohttp.ClientSession) if fields else contextlib.nullcontext()
            with contextlib.redirect_stdout(sys.stderr), plain:
                serving.cli_main()
        except (Exception, SystemExit):
            error = _last_line(traceback.format_exc())
            traceback.print_exc()
        finally:
            serving.ASYNC_REQUEST_FUNCS[BACKEND] = original
        benchmark = _summary(output)
    failed = sum(recorder.errors.values())
    lost = run["requests"] - len(recorder.answers) - failed
    if lost:
        text = error or "the benchmark did not send it"
        recorder.errors[text] = recorder.errors.get(text, 0) + lost
    after = counters(target, options["counters"])
    say(
        "round", **run,
        seconds=max(recorder.ended - recorder.began, 0.0) if recorder.answers or failed else 0.0,
        answers=recorder.answers, errors=recorder.errors,
        asked_tokens=options["load"]["output_tokens"], tokens_told=target.get("told", True),
        cpu_seconds=round(recorder.cpu_seconds, 3), cpu_cores=cpu_cores(),
        counters={n: after[n] - before[n] for n in after if n in before and after[n] >= before[n]},
        settings=settings(target, key), benchmark=benchmark,
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
    for target in targets:
        key = key_of(target)
        if why := wait_until_ready(target, key, options["ready_seconds"]):
            say("failed", message=why)
            return 1
    plain = [target["name"] for target in targets if "ignore_eos" not in target.get("fields", WORDS[0])]
    say("ready", models=[t["model"] for t in targets], plain=plain)
    for run in options["runs"]:
        if not measure(serving, targets[run["target"]], run, options):
            say("end", complete=False)
            return 0
    say("end", complete=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
