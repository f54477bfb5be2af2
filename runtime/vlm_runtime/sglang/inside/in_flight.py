"""Counts the requests in flight in a replica: the metric for autoscaling.

SGLang's own gauges start at its scheduler and miss requests whose images are still fetched and preprocessed; its count of
active HTTP requests ends when a streamed answer begins. Here a request counts from its first byte to the last byte of its
answer.
"""

from typing import Any, Final

from vlm_runtime.sglang.inside import metric_specs
from vlm_runtime.sglang.inside.failsafe import FailSafe
from vlm_runtime.sglang.inside.guard import App, Message, Receive, Scope, Send, routed_path

# Paths whose requests go to the model; the process itself answers all others.
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
        self._fail_safe = FailSafe("requests in flight")

    def start(self, registry: Any = None) -> None:
        """Called when SGLang's application has started: prometheus_client has its mode then."""
        if metric_specs.are_enabled():
            self._gauge = self._fail_safe(metric_specs.IN_FLIGHT.create, registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gauge = self._gauge
        if gauge is None or scope["type"] != "http" or scope["method"] not in METHODS or routed_path(scope) not in WORK:
            return await self._app(scope, receive, send)
        request = _Request(send, gauge, self._fail_safe)
        try:
            return await self._app(scope, receive, request)
        finally:
            request.end()


class _Request:
    """Counts until the last byte is sent: SGLang's application returns two seconds later, after its clean-up."""

    def __init__(self, send: Send, gauge: Any, fail_safe: FailSafe) -> None:
        self._send = send
        self._gauge = gauge
        self._fail_safe = fail_safe
        self._fail_safe(gauge.inc)

    async def __call__(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.end()

    def end(self) -> None:
        """The answer is sent, or the client has disconnected."""
        if self._gauge is not None:
            self._fail_safe(self._gauge.dec)
            self._gauge = None
