"""The runtime's HTTP port: probes, metrics, report."""

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry

from vlm_api.names import READY_PATH
from vlm_runtime.hardware import nvml
from vlm_runtime.report import metrics
from vlm_runtime.report.state import Probe, RuntimeState

Page = tuple[int, str, bytes]
"""Status, content type, body."""

_IDLE_SECONDS: Final = 30
# Kubelet, Prometheus, the operator and people need a handful. More must not exhaust the runtime's file descriptors.
MOST_CONNECTIONS: Final = 64


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "vlm-runtime"
    sys_version = ""
    timeout = _IDLE_SECONDS
    pages: Mapping[str, Callable[[], Page]]

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        unknown = f"unknown path; known paths: {', '.join(self.pages)}\n".encode()
        status, kind, body = page() if page else (404, "text/plain; charset=utf-8", unknown)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Does not log probes every few seconds."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a probe in a burst of connections must not wait for a TCP retransmit

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._open: dict[Any, None] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own. Closes the oldest of too many connections, so that a probe is always answered."""
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > MOST_CONNECTIONS else None
            self._open.pop(oldest, None)
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """At the end of each connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does not log a traceback for a client that disconnects."""

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer's own looks up the host's name and may wait for a DNS server.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "vlm-runtime", self.server_address[1]


def serve(state: RuntimeState, port: int) -> int:
    """Serves on all addresses, in threads of its own; returns the port (0 chooses one).

    Raises OSError if the port is taken.
    """
    registry = metrics.registry(state, nvml.load())
    handler = type("Handler", (_Handler,), {"pages": pages(state, registry)})
    dual = socket.has_dualstack_ipv6()
    server = type("Server", (_Server,), {"address_family": socket.AF_INET6 if dual else socket.AF_INET})(
        ("::" if dual else "0.0.0.0", port), handler
    )
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return int(server.server_port)


def pages(state: RuntimeState, registry: CollectorRegistry) -> dict[str, Callable[[], Page]]:
    """Path -> its page."""
    return {
        "/startupz": lambda: _probe(state.startup_probe()),
        READY_PATH: lambda: _probe(state.readiness_probe()),
        "/livez": lambda: _probe(state.liveness_probe()),
        "/metrics": lambda: (200, metrics.CONTENT_TYPE, metrics.exposition(registry)),
        "/report": lambda: (200, "application/json", state.report().model_dump_json(by_alias=True).encode()),
    }


def _probe(probe: Probe) -> Page:
    return 200 if probe.ok else 503, "text/plain; charset=utf-8", f"{probe.reason}\n".encode()
