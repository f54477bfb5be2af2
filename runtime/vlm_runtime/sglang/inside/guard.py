"""The ASGI application that closes the engine's control paths inside the engine itself.

SGLang answers ``/flush_cache``, ``/update_weights_from_disk`` and dozens more to everyone who reaches its port, and
``/server_info`` shows its keys. The guard answers 403 to other pods, except on paths that serve requests. Inside the pod
(the runtime, ``kubectl port-forward``) every path is open, but not to GET: a request may name
``http://127.0.0.1:8000/flush_cache`` as an image, which the engine fetches from itself. All control paths take POST as
well. Keys are masked in ``/server_info`` for everyone. A WebSocket needs the API key, for which SGLang does not ask.

``/health`` and ``/health_generate`` need no key, compute a token, and make the engine call itself unhealthy if none comes in
time: they are for this pod. To others ``/health`` is ``/ready``, which looks only.
"""

import hashlib
import hmac
import json
import os
import re
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
        "/", "/ready", "/ping", "/metrics", "/metrics/", "/model_info", "/get_model_info",
        "/server_info", "/get_server_info", "/generate", "/encode", "/classify", "/tokenize", "/detokenize",
        "/invocations", "/vertex_generate", "/parse_function_call", "/separate_reasoning",
    }
)  # fmt: skip
OPEN_PREFIXES: Final = ("/v1/", "/api/")

_INFO_PATHS: Final = frozenset({"/server_info", "/get_server_info"})
_SECRET_FIELDS: Final = frozenset({"api_key", "admin_api_key", "ssl_keyfile_password"})
_GENERATING: Final = frozenset({"/health", "/health_generate"})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
# How the engine fetches the URLs in a request.
_FETCHES: Final = frozenset({"GET", "HEAD"})
# SGLang's check of the key builds a URL from Host: with Starlette before 1.0.1 (CVE-2026-48710) "x/health?" needs no key.
_HOST: Final = re.compile(rb"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
# A browser behind kubectl port-forward sends its pages' requests from loopback too.
_LOCAL_HOST: Final = re.compile(
    rb"(?:localhost|127\.0\.0\.1|\[::1\]|\[::ffff:127\.0\.0\.1\])(?::[0-9]{1,5})?", re.IGNORECASE
)


def error_body(message: str, kind: str, code: int) -> bytes:
    """An answer as SGLang's own errors are written."""
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


_BAD_HOST: Final = error_body("send one Host header, HOST or HOST:PORT", "bad_request", 400)
_BAD_TARGET: Final = error_body("send a path that begins with / in the request line", "bad_request", 400)
_REFUSED: Final = error_body(
    "this path is open inside the pod only, and not to GET: use kubectl port-forward and POST", "forbidden", 403
)
_NO_GENERATION: Final = error_body(
    "this path computes a token, and is open inside the pod only: ask /ready", "forbidden", 403
)


class Guard:
    """An ASGI application in front of another one. Costs an allowed request a lookup in a set and a stat.

    While ``drain_file`` exists, each answer closes its connection: a client that reuses one connection would otherwise
    return to a draining pod until an answer is cut.
    """

    def __init__(self, app: App, drain_file: str | None = None, key_digest: str | None = None) -> None:
        """``key_digest``: the SHA-256 of the key that a WebSocket must bring, in hex."""
        self._app = app
        self._drain_file = drain_file
        self._key_digest = key_digest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] == "http" and self._is_draining():
            send = _closing_connections(send)
        if not _has_valid_host(scope):
            return await _refuse(scope, send, 400, _BAD_HOST)
        path = routed_path(scope)
        if not path.startswith("/"):
            return await _refuse(scope, send, 400, _BAD_TARGET)
        if path in _GENERATING and not _is_own(scope):
            if path != "/health":
                return await _refuse(scope, send, 403, _NO_GENERATION)
            scope = {**scope, "path": scope["path"].removesuffix(path) + "/ready"}
        elif not (path in OPEN_PATHS or path in _GENERATING or path.startswith(OPEN_PREFIXES) or _is_local(scope)):
            return await _refuse(scope, send)
        if scope["type"] == "websocket" and not self._has_key(scope):
            return await _refuse(scope, send)
        if path in _INFO_PATHS:
            return await self._app(scope, receive, _KeyMasker(send))
        return await self._app(scope, receive, send)

    def _has_key(self, scope: Scope) -> bool:
        if self._key_digest is None:
            return True
        scheme, _, key = b",".join(_headers(scope, b"authorization")).partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(hashlib.sha256(key).hexdigest(), self._key_digest)

    def _is_draining(self) -> bool:
        return self._drain_file is not None and os.path.exists(self._drain_file)


def _closing_connections(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return sending


class _KeyMasker:
    """Buffers an answer and forwards it without the keys."""

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
    """The JSON with every key masked, also inside other texts such as the command line.

    A body that is not JSON is replaced as a whole, since it cannot be checked.
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
    return path.removeprefix(root)


def _is_own(scope: Scope) -> bool:
    """Whether this pod asks: over loopback, or over the one address that the engine listens on.

    Others have the Service's host, also through a sidecar, which connects from this pod.
    """
    client, server, host = scope.get("client"), scope.get("server"), b"".join(_headers(scope, b"host"))
    if client is None:
        return False
    if client[0] in _LOOPBACK and _LOCAL_HOST.fullmatch(host):
        return True
    return server is not None and client[0] == server[0] and _name(host) == server[0]


def _name(host: bytes) -> str:
    """The host without its port and brackets."""
    return re.sub(rb":[0-9]+$", b"", host).strip(b"[]").decode("latin-1")


def _is_local(scope: Scope) -> bool:
    client = scope.get("client")
    if client is None or client[0] not in _LOOPBACK or scope.get("method") in _FETCHES:
        return False
    host = b"".join(_headers(scope, b"host"))
    if not _LOCAL_HOST.fullmatch(host):
        return False
    return all(origin in (b"http://" + host, b"https://" + host) for origin in _headers(scope, b"origin"))


def _has_valid_host(scope: Scope) -> bool:
    hosts = _headers(scope, b"host")
    if not hosts:  # HTTP/1.0 has none; no URL is built from it then
        return scope.get("http_version") == "1.0"
    return len(hosts) == 1 and _HOST.fullmatch(hosts[0]) is not None


def _headers(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key.lower() == name]


async def _refuse(scope: Scope, send: Send, status: int = 403, body: bytes = _REFUSED) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
