"""The engine and its runtime, asked over HTTP as clients and Prometheus do."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from demo.question import request_body
from e2e.world import World

QUESTION = "What is in this picture?"


@dataclass(frozen=True)
class Answer:
    """A streamed answer."""

    status: int
    chunks: int = 0
    finish_reason: str | None = None
    model: str = ""
    first_token_seconds: float = 0.0


def get(url: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    """One GET. No proxy of the machine stands between it and the cluster."""
    with httpx.Client(trust_env=False, timeout=30) as client:
        return client.get(url, headers=headers)


def engine_url(world: World, name: str) -> str:
    """The Service's cluster address, which the machine has a route to."""
    return f"http://{world.get('service', name)['spec']['clusterIP']}:8000"


def runtime_url(pod: Mapping[str, Any]) -> str:
    return f"http://{pod['status']['podIP']}:8001"


def bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def ask(world: World, name: str, *, model: str, key: str | None = None, max_tokens: int = 24) -> Answer:
    """A question about a generated image, through the service's OpenAI API, with its answer streamed."""
    body = request_body(model, QUESTION, max_tokens) | {"temperature": 0}
    url = f"{engine_url(world, name)}/v1/chat/completions"
    first, chunks, finish, served = 0.0, 0, None, ""
    begun = time.monotonic()
    with (
        httpx.Client(trust_env=False, timeout=120) as client,
        client.stream("POST", url, json=body, headers=bearer(key)) as response,
    ):
        if response.status_code != 200:
            return Answer(response.status_code)
        for line in response.iter_lines():
            data = line.removeprefix("data:").strip()
            if not data or data == "[DONE]":
                continue
            part = json.loads(data)
            served = part["model"]
            for choice in part["choices"]:
                finish = choice["finish_reason"] or finish
                if choice["delta"].get("content"):
                    first = first or time.monotonic() - begun
                    chunks += 1
    return Answer(200, chunks, finish, served, first)
