"""GET /healthz, /readyz and /metrics, served by threads of their own, so that they also answer while the event loop is stuck."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import CollectorRegistry

# An event loop that has not run for this long is stuck; the kubelet then restarts the operator.
STUCK_SECONDS: Final = 30.0
SILENT_SECONDS: Final = 10.0
# A client that sends a byte now and then is never silent.
LONGEST_SECONDS: Final = 30.0
# Kubelet, Prometheus and people need a handful, and each connection is a thread.
MOST_CONNECTIONS: Final = 64


class Health:
    """The answers to the probes. Set from anywhere, read by the server's threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beat_at: float | None = None
        self.standby = False
        """True while another operator holds the lease: healthy and ready."""
        self.watching = False
        """True once the watches have started."""

    def beat(self) -> None:
        """The event loop runs."""
        self._beat_at = self._clock()

    def live(self) -> tuple[bool, str]:
        """For the liveness probe. Before the loop starts nothing can be stuck."""
        if self._beat_at is None:
            return True, "starting"
        age = self._clock() - self._beat_at
        return age < STUCK_SECONDS, f"the event loop ran {age:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """For the readiness probe."""
        if self.standby:
            return True, "standing by: another operator holds the lease"
        return self.watching and self.live()[0], "watching" if self.watching else "starting"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a probe in a burst of connections must not wait for a TCP retransmit

    def __init__(self, *args: Any) -> None:
        self._lock = threading.Lock()
        self._opened: dict[Any, float] = {}
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own. Closes the oldest of too many connections, so that a probe is always answered."""
        with self._lock:
            self._opened[request] = time.monotonic()
            if len(self._opened) > MOST_CONNECTIONS:
                self._close(next(iter(self._opened)))
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Twice a second: closes connections that take too long."""
        with self._lock:
            for request in [r for r, at in self._opened.items() if time.monotonic() - at > LONGEST_SECONDS]:
                self._close(request)

    def _close(self, request: Any) -> None:
        del self._opened[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """At the end of each connection."""
        with self._lock:
            self._opened.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """No traceback for a client that disconnects."""


def serve(address: str, health: Health, registry: CollectorRegistry) -> ThreadingHTTPServer:
    """Starts the server; ``address`` is HOST:PORT, with an empty host for all. Raises OSError if it is in use."""

    class Handler(BaseHTTPRequestHandler):
        # A connection without a request would keep a thread forever.
        timeout = SILENT_SECONDS

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path in ("/healthz", "/readyz"):
                good, text = health.live() if path == "/healthz" else health.ready()
                self._answer(200 if good else 503, f"{text}\n".encode(), "text/plain; charset=utf-8")
            else:
                self._answer(404, b"there are /healthz, /readyz and /metrics\n", "text/plain; charset=utf-8")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            with contextlib.suppress(OSError):  # a probe that timed out
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """No line for probes every few seconds."""

    host, _, port = address.rpartition(":")
    server = _Server((host.strip("[]"), int(port)), Handler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
