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
import itertools
import json
import os
import re
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

MARK = "vlm-bench "
ERROR_LENGTH = 300
PROGRESS_SECONDS = 0.5
BACKEND = "sglang-oai-chat"
# A round in which more fail than this share ends the measurement: the server is gone, or refuses the load.
MOST_FAILURES = 0.5


_lines = itertools.count(1)


def say(event: str, **fields: Any) -> None:
    """One line for whoever reads the pod's log. Lines are numbered, since a log may have to be read again."""
    print(MARK + json.dumps({"event": event, "line": next(_lines), **fields}), file=sys.__stdout__, flush=True)


class Recorder:
    """Stands before SGLang's request function and keeps what became of each request."""

    def __init__(self, send: Any, total: int) -> None:
        self._send, self._total, self._told = send, total, 0.0
        self.answers: list[list[float]] = []
        self.errors: dict[str, int] = {}
        self.began, self.ended = float("inf"), 0.0

    async def __call__(self, request_func_input: Any, pbar: Any = None) -> Any:
        began = time.perf_counter()
        output = await self._send(request_func_input=request_func_input, pbar=pbar)
        ended = time.perf_counter()
        self.began, self.ended = min(self.began, began), max(self.ended, ended)
        # A server that dies while it streams ends the stream, which SGLang takes for an answer.
        if output.success and output.ttft > 0:
            tokens = int(output.output_len)
            per_token = (output.latency - output.ttft) / (tokens - 1) if tokens > 1 else 0.0
            self.answers.append([_ms(output.ttft), _ms(per_token), _ms(output.latency), tokens])
        else:
            text = _last_line(output.error) or "the answer ended before its first token"
            self.errors[text] = self.errors.get(text, 0) + 1
        if ended - self._told > PROGRESS_SECONDS:
            self._told = ended
            say("progress", done=len(self.answers) + sum(self.errors.values()), of=self._total)
        return output


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1][:ERROR_LENGTH] if lines else ""


def ask(url: str, key: str | None, seconds: float = 10) -> bytes | None:
    """A GET; None where there is no answer. No proxy: servers are in the cluster, or told by their URL."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=seconds) as answer:
            body: bytes = answer.read()
            return body
    except (OSError, ValueError):
        return None


def wait_until_ready(target: dict[str, Any], key: str | None, seconds: float) -> bool:
    """Whether the server lists its models within the time."""
    deadline = time.monotonic() + seconds
    while True:
        body = ask(target["url"] + "/v1/models", key)
        if body is not None:
            if not target.get("model"):
                listed = json.loads(body).get("data") or [{}]
                target["model"] = listed[0].get("id")
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(1)


def takes_ignore_eos(target: dict[str, Any], key: str | None) -> bool:
    """Whether the server takes the benchmark's field ``ignore_eos``, which the OpenAI API does not know."""
    question = [{"role": "user", "content": "Hello"}]
    body = {"model": target["model"], "messages": question, "max_completion_tokens": 1, "ignore_eos": True}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    url = target["url"] + "/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=600) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        return error.code not in (400, 422)
    except OSError:
        pass
    return True


@contextlib.contextmanager
def plain_requests(aiohttp: Any) -> Iterator[None]:
    """Inside, requests are sent as the OpenAI API has them, with the older name of ``max_completion_tokens`` besides."""
    original = aiohttp.ClientSession

    class PlainSession(original):  # type: ignore[valid-type,misc]
        def post(self, url: Any, *, json: Any = None, **options: Any) -> Any:
            if isinstance(json, dict):
                json = {name: value for name, value in json.items() if name != "ignore_eos"}
                json["max_tokens"] = json.get("max_completion_tokens")
            return super().post(url, json=json, **options)

    aiohttp.ClientSession = PlainSession
    try:
        yield
    finally:
        aiohttp.ClientSession = original


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
    body = ask(target["url"] + "/server_info", key)
    try:
        info = json.loads(body or b"{}")
    except ValueError:
        return {}
    states = info.get("internal_states") or [{}]
    variables = states[0].get("env_vars") or {}
    found = {}
    for name in target.get("settings") or []:
        if name in info:
            found[name] = info[name]
        elif name in variables:
            found[name] = variables[name]
    return found


def arguments(target: dict[str, Any], run: dict[str, Any], load: dict[str, Any], output: str) -> list[str]:
    """The benchmark's command line. Height comes before width; the warm-up is a run of its own, since the benchmark's
    would send the first image twice; and no cache is flushed, which the engine allows nobody but its own pod."""
    return [
        "--backend", BACKEND, "--base-url", target["url"],
        # The processor's files; the name that the server knows goes into the requests.
        "--model", target["tokenizer"], "--tokenizer", target["tokenizer"],
        "--extra-request-body", json.dumps({"model": target["model"]}),
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
    key = os.environ.get(target.get("key_variable") or "") or None
    os.environ.pop("OPENAI_API_KEY", None)
    if key:
        os.environ["OPENAI_API_KEY"] = key
    say("begin", **run)
    before = counters(target, options["counters"])
    original = serving.ASYNC_REQUEST_FUNCS[BACKEND]
    recorder = Recorder(original, run["requests"])
    serving.ASYNC_REQUEST_FUNCS[BACKEND] = recorder
    error = None
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "result.jsonl")
        sys.argv = ["sglang.benchmark.serving", *arguments(target, run, options["load"], output)]
        try:
            plain = plain_requests(serving.aiohttp) if target.get("plain") else contextlib.nullcontext()
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
        recorder.errors[error or "the benchmark did not send it"] = lost
    after = counters(target, options["counters"])
    say(
        "round",
        **run,
        seconds=max(recorder.ended - recorder.began, 0.0) if recorder.answers or failed else 0.0,
        answers=recorder.answers,
        errors=recorder.errors,
        counters={n: after[n] - before[n] for n in after if n in before and after[n] >= before[n]},
        settings=settings(target, key),
        benchmark=benchmark,
    )
    return bool(len(recorder.answers) >= run["requests"] * MOST_FAILURES)


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
        key = os.environ.get(target.get("key_variable") or "") or None
        if not wait_until_ready(target, key, options["ready_seconds"]):
            said = f"{target['url']}/v1/models gave no answer within {options['ready_seconds']} s"
            say("failed", message=f"{said}: is it ready, and is its key the right one?")
            return 1
        if not target.get("model"):
            say("failed", message=f"{target['url']} lists no model: name one (--against-model)")
            return 1
        if target.get("unknown"):
            target["plain"] = not takes_ignore_eos(target, key)
    plain = [target["name"] for target in targets if target.get("plain")]
    say("ready", models=[t["model"] for t in targets], plain=plain)
    for run in options["runs"]:
        if not measure(serving, targets[run["target"]], run, options):
            say("end", complete=False)
            return 0
    say("end", complete=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
