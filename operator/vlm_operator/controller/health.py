"""GET /healthz, /readyz and /metrics, served by threads of their own, so that they tell of a stuck event loop too."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import CollectorRegistry

# An event loop that has not turned for this long is stuck; the kubelet then restarts the operator.
STUCK_SECONDS: Final = 30.0
SILENT_SECONDS: Final = 10.0


class Health:
    """What the probes are told. Set from anywhere, read by the server's threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turned_at: float | None = None
        self.standby = False
        """True while another operator holds the lease: healthy and ready, since there is nothing to wait for."""
        self.watching = False
        """True once the watches have started."""

    def turned(self) -> None:
        """The event loop is alive."""
        self._turned_at = self._clock()

    def live(self) -> tuple[bool, str]:
        """For the liveness probe. Before the loop starts there is nothing that could be stuck."""
        if self._turned_at is None:
            return True, "starting"
        age = self._clock() - self._turned_at
        return age < STUCK_SECONDS, f"the event loop turned {age:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """For the readiness probe."""
        if self.standby:
            return True, "standing by: another operator holds the lease"
        return self.watching and self.live()[0], "watching" if self.watching else "starting"


def serve(address: str, health: Health, registry: CollectorRegistry) -> ThreadingHTTPServer:
    """Starts the server; ``address`` is HOST:PORT, with an empty host for all. Raises OSError where it is taken."""

    class Handler(BaseHTTPRequestHandler):
        # Whoever connects and says nothing would keep a thread for ever.
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
            with contextlib.suppress(OSError):  # a probe that has lost its patience
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes every few seconds are not worth a line."""

    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
