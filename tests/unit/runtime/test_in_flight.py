"""Requests in flight, counted without failing a request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from vlm_runtime.sglang.inside.in_flight import InFlight

NAME = "vlmserve_requests_in_flight"
CHAT = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}


class Engine:
    """SGLang's application, which says how many requests were in flight while it answered."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seen: list[float | None] = []
        self.fails = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(self.registry.get_sample_value(NAME))
        if self.fails:
            raise ConnectionResetError("the client has gone")
        await send({"type": "http.response.start", "status": 200})
        self.seen.append(self.registry.get_sample_value(NAME))
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        self.seen.append(self.registry.get_sample_value(NAME))
        await send({"type": "http.response.body", "body": b"b"})
        # SGLang clears up for another two seconds.
        self.seen.append(self.registry.get_sample_value(NAME))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/nowhere")
    return Engine()


def asked(engine: Engine, app: InFlight, scope: dict[str, str]) -> list[float | None]:
    async def send(message: Any) -> None:
        pass

    asyncio.run(app(scope, None, send))  # type: ignore[arg-type]
    return engine.seen


def test_a_request_counts_from_its_arrival_until_its_answer_has_ended(engine: Engine) -> None:
    app = InFlight(engine)
    app.start(engine.registry)
    assert asked(engine, app, CHAT) == [1, 1, 1, 0]
    assert engine.registry.get_sample_value(NAME) == 0


@pytest.mark.parametrize(
    "scope",
    [
        {
            **CHAT,
            "path": "/engine/v1/chat/completions",
            "root_path": "/engine",
        },  # --fastapi-root-path, as Uvicorn tells it
        {**CHAT, "path": "/v1/chat/completions", "root_path": "/engine"},
        {**CHAT, "path": "/generate", "method": "PUT"},
        {**CHAT, "path": "/v1/audio/transcriptions"},
    ],
)
def test_every_path_to_the_model_counts(engine: Engine, scope: dict[str, str]) -> None:
    app = InFlight(engine)
    app.start(engine.registry)
    assert asked(engine, app, scope) == [1, 1, 1, 0]


def test_a_request_of_a_client_that_disconnects_stops_counting(engine: Engine) -> None:
    app, engine.fails = InFlight(engine), True
    app.start(engine.registry)
    with pytest.raises(ConnectionResetError):
        asked(engine, app, CHAT)
    assert engine.registry.get_sample_value(NAME) == 0


@pytest.mark.parametrize("scope", [{**CHAT, "path": "/metrics", "method": "GET"}, {**CHAT, "path": "/tokenize"}])
def test_other_paths_do_not_count(engine: Engine, scope: dict[str, str]) -> None:
    app = InFlight(engine)
    app.start(engine.registry)
    assert asked(engine, app, scope) == [0, 0, 0, 0]


def test_before_the_start_and_without_metrics_requests_pass(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    app = InFlight(engine)
    assert asked(engine, app, CHAT) == [None] * 4
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR")
    app.start(engine.registry)
    assert asked(engine, app, CHAT)[4:] == [None] * 4


def test_a_taken_metric_name_costs_the_metric_not_the_request(engine: Engine) -> None:
    InFlight(engine).start(engine.registry)
    app = InFlight(engine)
    app.start(engine.registry)
    assert asked(engine, app, CHAT) == [0, 0, 0, 0]
