"""Before the load: whether a server answers, what it calls its model, and in which words it wants to be asked.

Sent into the Job's pod as text beside ``driver.py`` (see ``programs.py``): the standard library only, Python 3.10.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

from vlm_operator.measure.asking import UNTRUSTED, Server, said

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


def wait_until_ready(server: Server, seconds: float) -> str | None:
    """Finds out what the server calls its model, and how a server that is not ours wants to be asked.

    Waits so long for one that is not ready yet. Why it cannot be measured; None where it can.
    """
    deadline, doubt = time.monotonic() + seconds, ""
    while True:
        status, why = _look(server)
        if not why:
            return None
        if status == UNTRUSTED and server.believes_otherwise():
            doubt = why  # what is wrong with the engine's own certificate says more than that nobody vouches for it
            continue
        if status not in NOT_READY:
            return doubt if doubt and status == UNTRUSTED else why
        if time.monotonic() > deadline:
            return f"{why}; so it was for {seconds} s"
        time.sleep(1)


def _look(server: Server) -> tuple[int, str]:
    """The last status, and what stands against a measurement; an empty text where nothing does."""
    target = server.target
    if not target.get("unknown") or not target.get("model"):
        status, body = server.get("/v1/models")
        if status != 200:
            nameless = target.get("unknown") and status > 0 and status not in (*NOT_READY, 401, 403)
            advice = ": name its model (--against-model)" if nameless else ""
            return status, f"{server.url}/v1/models: {said(status, body)}{_about(status, server)}{advice}"
        target["model"] = target.get("model") or first_model(body)
        if not target["model"]:
            return status, f"{server.url} lists no model: name one (--against-model)"
    return _question(server) if target.get("unknown") else (200, "")


def first_model(body: bytes) -> str | None:
    """The name of the first that ``/v1/models`` lists."""
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return None


def _about(status: int, server: Server) -> str:
    if status == UNTRUSTED and server.advice:
        return f" ({server.advice})"
    return " (does it want another key?)" if status in (401, 403) else ""


def _question(server: Server) -> tuple[int, str]:
    """Asks for one token as the load does, in the benchmark's words and then in fewer, until the server takes them.

    What it takes, and whether it told its tokens, is kept in the target.
    """
    path, target = "/v1/chat/completions", server.target
    refusals: dict[str, None] = {}
    question = {"model": target["model"], "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    for fields, extra in itertools.product(WORDS, (TELL_TOKENS, {})):
        status, answer = server.post(path, FIRST_ANSWER_SECONDS, {**question, **worded(1, fields), **extra})
        if status == 200:
            target.update(fields=fields, extra=extra, told=tells_tokens(answer))
            return 200, ""
        refusals[said(status, answer) + _about(status, server)] = None
        if status not in (400, 422):
            return status, f"{server.url}{path}: {list(refusals)[-1]}"
    return status, f"{server.url}{path} refuses a short question: {'; '.join(refusals)}"


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
