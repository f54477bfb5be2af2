"""The engine's HTTP API, as far as the runtime uses it: over the loopback address if the engine listens there."""

import errno
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any, Final

from vlm_runtime.sglang.command import EngineCommand
from vlm_runtime.sglang.releases import READY_SINCE, TRUE_PING_SINCE, is_at_least

HEALTH_TIMEOUT_SECONDS: Final = 25.0
READY_TIMEOUT_SECONDS: Final = 10.0
METRICS_TIMEOUT_SECONDS: Final = 10.0
# Asked before the pod takes its first request.
INFO_TIMEOUT_SECONDS: Final = 10.0


class EngineUnreachable(Exception):
    """No answer. ``str()`` says why in a few words."""


class CannotAsk(EngineUnreachable):
    """The request could not even be sent, for lack of local resources: that says nothing about the engine."""


# No files, sockets, memory or ports left for a new connection.
_LOCAL_ERRORS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN}
)


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ValueError if it is not JSON."""
        return json.loads(self.body)

    def brief(self) -> str:
        """The beginning of the body, on one line."""
        return " ".join(self.body[:400].decode("utf-8", "replace").split())


class EngineClient:
    """Sends the runtime's requests to its engine."""

    def __init__(self, command: EngineCommand, version: str | None) -> None:
        self._command = command
        # A worker pod of a group has a small server of its own, which knows /health only and answers at once.
        self._has_ready = command.is_leader and is_at_least(version, READY_SINCE)
        self._has_true_ping = is_at_least(version, TRUE_PING_SINCE)

    @property
    def poll_seconds(self) -> float:
        """How often to ask whether the engine serves."""
        return 2.0 if self._has_ready or not self._command.is_leader else 15.0

    def is_serving(self) -> Answer:
        """Whether the engine serves: status 200. Raises EngineUnreachable."""
        if self._has_ready:
            answer = self._request("GET", "/ready", timeout=READY_TIMEOUT_SECONDS)
            if answer.status not in (401, 404):
                return answer
            # The version was unknown, or not what the image's tag says.
            self._has_ready = False
        return self._request("GET", "/health", timeout=HEALTH_TIMEOUT_SECONDS)

    @property
    def has_ready(self) -> bool:
        """Whether ``is_serving`` works without a request to the model."""
        return self._has_ready

    def is_alive(self, timeout_seconds: float) -> bool:
        """Whether every scheduler answers between two of its steps. Computes no token, and works while paused.

        In all known releases /server_info asks every scheduler. An error counts as an answer.
        """
        try:
            self._request("GET", "/server_info", timeout=timeout_seconds)
        except CannotAsk:
            return True
        except EngineUnreachable:
            return False
        return True

    def calls_itself_healthy(self) -> bool | None:
        """For an engine whose /ready says no. True: somebody paused it. False: it calls itself unhealthy, because a
        /health was not answered in time, and will until one is. None: unknown.
        """
        if not self._has_ready or not self._has_true_ping:
            return None
        try:
            status = self._request("GET", "/ping", timeout=READY_TIMEOUT_SECONDS).status
        except EngineUnreachable:
            return None
        return {200: True, 503: False}.get(status)

    def heal(self) -> None:
        """Makes an engine that calls itself unhealthy check again, because SIGTERM would cut its running requests.

        Sends nothing to an engine that is ready or known to be paused: an unanswered request would make it unhealthy.
        """
        try:
            refuses = self._has_ready and self._request("GET", "/ready", timeout=READY_TIMEOUT_SECONDS).status == 503
        except EngineUnreachable:
            return
        if refuses and self.calls_itself_healthy() is not True:
            self.computes()

    def computes(self) -> bool:
        """Whether a token comes through the whole engine within its own limit of 20 s.

        If requests run, the engine waits for their next token and computes none. If nothing comes, it calls itself
        unhealthy from then on: use only for an engine that already does, or that is given up.
        """
        try:
            return self._request("GET", "/health_generate", timeout=HEALTH_TIMEOUT_SECONDS).status == 200
        except EngineUnreachable:
            return False

    def chat(self, model: str, content: list[dict[str, Any]], *, timeout_seconds: float) -> Answer:
        """A chat completion of one token. Raises EngineUnreachable."""
        request = {
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 1,
            "temperature": 0,
        }
        return self._request("POST", "/v1/chat/completions", body=json.dumps(request).encode(), timeout=timeout_seconds)

    def understands_images(self) -> bool | None:
        """Whether the engine reports that its model understands images; None if it does not say."""
        try:
            answer = self._request("GET", "/model_info", timeout=INFO_TIMEOUT_SECONDS)
            info = answer.json() if answer.status == 200 else None
        except (EngineUnreachable, ValueError):
            return None
        value = info.get("has_image_understanding") if isinstance(info, dict) else None
        return value if isinstance(value, bool) else None

    def server_info(self) -> dict[str, Any]:
        """The settings that the engine reports. Contains its keys: never log it whole.

        Raises EngineUnreachable; ValueError if the answer is not a JSON object.
        """
        answer = self._request("GET", "/server_info", timeout=INFO_TIMEOUT_SECONDS)
        info = answer.json() if answer.status == 200 else None
        if not isinstance(info, dict):
            raise ValueError(f"/server_info answered {answer.status}")
        return info

    def metrics(self) -> bytes:
        """The engine's metrics in Prometheus' text format; empty if it serves none. Raises EngineUnreachable."""
        # Older releases redirect without the trailing slash.
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
            if isinstance(error, OSError) and error.errno in _LOCAL_ERRORS:
                raise CannotAsk(f"{path}: {error.strerror} in the runtime") from error
            raise EngineUnreachable(f"{path}: {type(error).__name__}") from error
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        address, port = self._command.address, self._command.port
        if not self._command.tls:
            return http.client.HTTPConnection(address, port, timeout=timeout)
        # The certificate is for the service's name, not for the loopback address.
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(address, port, timeout=timeout, context=context)
