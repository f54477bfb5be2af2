"""Asks the engine, over the loopback address where it listens there."""

from __future__ import annotations

import errno
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any, Final

from vlm_runtime.command import EngineCommand
from vlm_runtime.image import data_url

# From this version on, /ready says cheaply whether the engine serves. Before it, /health runs a token through the
# model and takes at least one second.
FIRST_WITH_READY: Final = (0, 5, 20)
# From this version on, /ping tells an engine that calls itself unhealthy from one that somebody paused.
FIRST_WITH_TRUE_PING: Final = (0, 5, 23)
HEALTH_TIMEOUT_SECONDS: Final = 25.0
READY_TIMEOUT_SECONDS: Final = 10.0
METRICS_TIMEOUT_SECONDS: Final = 10.0
# The pod waits for it before it takes its first request.
INFO_TIMEOUT_SECONDS: Final = 10.0
# What is asked about the first image, and once more without it.
QUESTION: Final = {"type": "text", "text": "What is in this picture?"}


class EngineUnreachable(Exception):
    """No answer. ``str()`` says why in a few words."""


class CannotAsk(EngineUnreachable):
    """The question could not even be sent, for a lack on this side: that says nothing of the engine."""


# No files, sockets, memory or ports left for a new connection.
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN})


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ValueError where it is none."""
        return json.loads(self.body)

    def brief(self) -> str:
        """The beginning of the body on one line."""
        return " ".join(self.body[:400].decode("utf-8", "replace").split())


class EngineClient:
    """The engine's HTTP API, as far as the runtime asks it."""

    def __init__(self, command: EngineCommand, version: str | None) -> None:
        self._command = command
        # A follower of a group has a small server of its own, which knows /health only and answers at once.
        self._has_ready = command.is_head and (version is None or _at_least(version, FIRST_WITH_READY))

        self._ping_is_true = version is None or _at_least(version, FIRST_WITH_TRUE_PING)

    @property
    def poll_seconds(self) -> float:
        """How often it is worth asking whether the engine serves."""
        return 2.0 if self._has_ready or not self._command.is_head else 15.0

    def is_serving(self) -> Answer:
        """Whether the engine serves: status 200. Raises EngineUnreachable."""
        if self._has_ready:
            answer = self._request("GET", "/ready", timeout=READY_TIMEOUT_SECONDS)
            if answer.status not in (401, 404):
                return answer
            # The version was not known, or not what its image said.
            self._has_ready = False
        return self._request("GET", "/health", timeout=HEALTH_TIMEOUT_SECONDS)

    @property
    def has_ready(self) -> bool:
        """True: whether it serves is asked without a question to the model."""
        return self._has_ready

    def has_pulse(self, timeout_seconds: float) -> bool:
        """Whether every scheduler answers between two of its steps: no token is computed, and a pause is no hindrance.

        In every known version /server_info asks them all. An error is an answer that says nothing against them.
        """
        try:
            self._request("GET", "/server_info", timeout=timeout_seconds)
        except CannotAsk:
            return True
        except EngineUnreachable:
            return False
        return True

    def calls_itself_healthy(self) -> bool | None:
        """Asked of an engine whose /ready says no: True: somebody paused it; False: it calls itself unhealthy, since
        somebody's /health was not answered in time, and will until one is answered. None: it does not tell which.
        """
        if not self._has_ready or not self._ping_is_true:
            return None
        try:
            status = self._request("GET", "/ping", timeout=READY_TIMEOUT_SECONDS).status
        except EngineUnreachable:
            return None
        return {200: True, 503: False}.get(status)

    def heal(self) -> None:
        """Has an engine that calls itself unhealthy look again: then SIGTERM would cut its running requests.

        Nothing is asked of an engine that is ready, nor of a paused one that says so, as SGLang does from 0.5.23 on: a
        question without an answer would make it unhealthy.
        """
        try:
            refuses = self._has_ready and self._request("GET", "/ready", timeout=READY_TIMEOUT_SECONDS).status == 503
        except EngineUnreachable:
            return
        if refuses and self.calls_itself_healthy() is not True:
            self.computes()

    def computes(self) -> bool:
        """Whether a token comes through the whole engine within its own limit of 20 s, or anything else does.

        Where requests run, it waits for their next token and computes none. Where nothing comes, the engine calls itself
        unhealthy from then on: only for an engine that does so already, or is given up.
        """
        try:
            return self._request("GET", "/health_generate", timeout=HEALTH_TIMEOUT_SECONDS).status == 200
        except EngineUnreachable:
            return False

    def ask_about_image(self, model: str, width: int, height: int, *, timeout_seconds: float) -> Answer:
        """One real question about a generated image of that size in pixels. Raises EngineUnreachable."""
        image = {"type": "image_url", "image_url": {"url": data_url(width, height)}}
        return self._ask(model, [image, QUESTION], timeout_seconds)

    def ask_without_image(self, model: str, *, timeout_seconds: float) -> Answer:
        """The same question, about nothing. Raises EngineUnreachable."""
        return self._ask(model, [QUESTION], timeout_seconds)

    def _ask(self, model: str, content: list[dict[str, Any]], timeout_seconds: float) -> Answer:
        question = {
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 1,
            "temperature": 0,
        }
        return self._request(
            "POST", "/v1/chat/completions", body=json.dumps(question).encode(), timeout=timeout_seconds
        )

    def understands_images(self) -> bool | None:
        """Whether the engine calls its model one that understands images; None where it does not say."""
        try:
            answer = self._request("GET", "/model_info", timeout=INFO_TIMEOUT_SECONDS)
            told = answer.json() if answer.status == 200 else None
        except (EngineUnreachable, ValueError):
            return None
        said = told.get("has_image_understanding") if isinstance(told, dict) else None
        return said if isinstance(said, bool) else None

    def server_info(self) -> dict[str, Any]:
        """What the engine says it uses. Holds its keys: never to be shown whole.

        Raises EngineUnreachable, and ValueError where the answer is not what it should be.
        """
        answer = self._request("GET", "/server_info", timeout=INFO_TIMEOUT_SECONDS)
        info = answer.json() if answer.status == 200 else None
        if not isinstance(info, dict):
            raise ValueError(f"/server_info answered {answer.status}")
        return info

    def metrics(self) -> bytes:
        """The engine's metrics in Prometheus' text format; empty where it serves none. Raises EngineUnreachable."""
        # Without the slash at its end, older versions redirect.
        answer = self._request("GET", "/metrics/", timeout=METRICS_TIMEOUT_SECONDS)
        return answer.body if answer.status == 200 else b""

    def _request(self, method: str, path: str, *, body: bytes | None = None, timeout: float) -> Answer:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._command.api_key is not None:
            headers["Authorization"] = f"Bearer {self._command.api_key}"
        connection = self._connect(timeout)
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in _OURS:
                raise CannotAsk(f"{path}: {error.strerror} on this side") from error
            raise EngineUnreachable(f"{path}: {type(error).__name__}") from error
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        address, port = self._command.address, self._command.port
        if not self._command.tls:
            return http.client.HTTPConnection(address, port, timeout=timeout)
        # The certificate is made out for the service's name, not for the loopback address.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(address, port, timeout=timeout, context=context)


def _at_least(version: str, first: tuple[int, ...]) -> bool:
    """Whether ``0.5.20.post1`` is 0.5.20 or later; a version that cannot be read counts as new."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return not numbers or tuple(numbers) >= first
