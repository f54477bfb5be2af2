"""The ASGI application that closes the engine's control paths inside the engine itself.

SGLang answers ``/flush_cache``, ``/update_weights_from_disk`` and dozens more to everyone who reaches its port, and
``/server_info`` shows its keys. From other pods only what serves requests is answered here, 403 else; from the pod
itself (the runtime, ``kubectl port-forward``) all of it, but not to GET: a request may name an image by the URL
``http://127.0.0.1:8000/flush_cache``, and the engine fetches it from itself. All control paths take POST as well. Keys
are cut out of ``/server_info`` for everyone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from vlm_runtime.redact import MASK, Redactor

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS: Final = frozenset(
    {
        "/", "/health", "/health_generate", "/ready", "/ping", "/metrics", "/metrics/", "/model_info", "/get_model_info",
        "/server_info", "/get_server_info", "/generate", "/encode", "/classify", "/tokenize", "/detokenize",
        "/invocations", "/vertex_generate", "/parse_function_call", "/separate_reasoning",
    }
)  # fmt: skip
OPEN_PREFIXES: Final = ("/v1/", "/api/")

_INFO_PATHS: Final = frozenset({"/server_info", "/get_server_info"})
_SECRET_FIELDS: Final = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password"})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
# How the engine fetches what a request names.
_FETCHES: Final = frozenset({"GET", "HEAD"})
_REFUSAL: Final = "this path is answered inside the pod only, and not to GET: use kubectl port-forward and POST"
_REFUSED: Final = json.dumps({"error": {"message": _REFUSAL, "type": "forbidden", "code": 403}}).encode()


class Guard:
    """An ASGI application in front of another one. A request that is let through costs a look into a set and at a path.

    While ``drain_file`` is there, each answer ends its connection: a client that keeps one connection for many requests
    would otherwise come back to a pod that wants to end, until that has to cut an answer.
    """

    def __init__(self, app: App, drain_file: str | None = None) -> None:
        self._app = app
        self._drain_file = drain_file

    def __getattr__(self, name: str) -> Any:
        # SGLang's workers keep their state on the application.
        return getattr(self._app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] == "http" and self._drains():
            send = _ending_connections(send)
        path = routed_path(scope)
        if not (path in OPEN_PATHS or path.startswith(OPEN_PREFIXES) or _is_local(scope)):
            return await _refuse(scope, send)
        if path in _INFO_PATHS:
            return await self._app(scope, receive, _Cutter(send))
        return await self._app(scope, receive, send)

    def _drains(self) -> bool:
        return self._drain_file is not None and os.path.exists(self._drain_file)


def _ending_connections(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return sending


class _Cutter:
    """Passes an answer on when it is whole, without the keys in it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message = {}
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = without_keys(self._body)
        kept = [(name, value) for name, value in self._start.get("headers", ()) if name.lower() != b"content-length"]
        await self._send({**self._start, "headers": [*kept, (b"content-length", str(len(body)).encode())]})
        await self._send({"type": "http.response.body", "body": body})


def without_keys(body: bytes) -> bytes:
    """The JSON with every key masked, also where it stands inside other texts such as the command line.

    What is no JSON is replaced as a whole, since it cannot be told what is in it.
    """
    try:
        answer = json.loads(body)
    except ValueError:
        return b"{}"
    secrets: set[str] = set()
    _collect(answer, secrets)
    return json.dumps(_masked(answer, Redactor(secrets))).encode()


def _collect(value: Any, secrets: set[str]) -> None:
    if isinstance(value, dict):
        secrets.update(v for name, v in value.items() if name in _SECRET_FIELDS and isinstance(v, str) and v)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _collect(item, secrets)


def _masked(value: Any, redact: Redactor) -> Any:
    if isinstance(value, dict):
        return {k: MASK if k in _SECRET_FIELDS and v else _masked(v, redact) for k, v in value.items()}
    if isinstance(value, list):
        return [_masked(item, redact) for item in value]
    return redact(value) if isinstance(value, str) else value


def routed_path(scope: Scope) -> str:
    """The path as the application's router sees it."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _is_local(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and client[0] in _LOOPBACK and scope.get("method") not in _FETCHES


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(_REFUSED)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSED})
