"""Counts the requests that a replica holds: what autoscaling goes by.

SGLang's own gauges begin at its scheduler, so requests whose images are still fetched and prepared are in none of them,
and its count of active HTTP requests ends where a streamed answer begins. Here a request counts from its first byte to
the last byte of its answer.
"""

from __future__ import annotations

from typing import Any, Final

from vlm_runtime.sglang import metrics
from vlm_runtime.sglang.guard import App, Message, Receive, Scope, Send, routed_path
from vlm_runtime.sglang.harmless import Harmless

# What the model works on; everything else is answered by the process itself.
WORK: Final = frozenset(
    {
        "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/classify",
        "/v1/score", "/v1/rerank", "/generate", "/encode", "/classify", "/api/chat", "/api/generate", "/invocations",
        "/vertex_generate", "/v1/decisions", "/v1/systemone", "/v1/audio/transcriptions",
    }
)  # fmt: skip
# SGLang's own paths take both.
METHODS: Final = frozenset({"POST", "PUT"})


class InFlight:
    """An ASGI application in front of another one."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._gauge: Any = None
        self._harmless = Harmless("requests in flight")

    def __getattr__(self, name: str) -> Any:
        # SGLang's workers keep their state on the application.
        return getattr(self._app, name)

    def start(self, registry: Any = None) -> None:
        """Called when SGLang's application has started: prometheus_client knows its mode then."""
        if metrics.enabled():
            self._gauge = self._harmless(metrics.IN_FLIGHT.make, registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gauge = self._gauge
        if gauge is None or scope["type"] != "http" or scope["method"] not in METHODS or routed_path(scope) not in WORK:
            return await self._app(scope, receive, send)
        request = _Request(send, gauge, self._harmless)
        try:
            return await self._app(scope, receive, request)
        finally:
            request.ended()


class _Request:
    """Counts until the last byte is sent: SGLang's application returns two seconds later, with its clearing up done."""

    def __init__(self, send: Send, gauge: Any, harmless: Harmless) -> None:
        self._send = send
        self._gauge = gauge
        self._harmless = harmless
        self._harmless(gauge.inc)

    async def __call__(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.ended()

    def ended(self) -> None:
        """The answer is out, or nobody is there to take it."""
        if self._gauge is not None:
            self._harmless(self._gauge.dec)
            self._gauge = None
