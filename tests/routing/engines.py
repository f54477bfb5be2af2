"""Stand-ins for engines behind a real Envoy: only how requests are spread and passed on is real."""

import contextlib
import hashlib
import json
import re
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vlm_api.names import READY_PATH

# What a gateway asks an engine before it sends requests.
MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model", "created": 1, "owned_by": "sglang"}]}
MODEL_INFO = {"model_path": "tiny", "is_generation": True, "has_image_understanding": True}
KNOWN = {
    READY_PATH: {"status": "ok"},
    "/ready": {"status": "ok"},
    "/health": {"status": "ok"},
    "/v1/models": MODELS,
    "/model_info": MODEL_INFO,
    "/server_info": {"served_model_name": "tiny", "version": "0.5.23", "max_running_requests": 400},
}


class Engine:
    """Counts requests, and which images they had by the key that the router gave them."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.images: Counter[str] = Counter()
        self.requests: list[dict[str, Any]] = []
        self.seen: set[str] = set()
        """Images by their own digests."""
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True, kwargs={"poll_interval": 0.05}).start()

    def forget(self) -> None:
        with self.lock:
            self.images.clear()
            self.requests.clear()
            self.seen.clear()

    def stop(self) -> None:
        """The engine is gone: its port refuses connections."""
        self._server.shutdown()
        self._server.server_close()
        for connection in self._server.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(*arguments)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def handle_error(self, *_: object) -> None:
        pass  # a router that ends its connection


def _handler(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            answer = KNOWN.get(self.path.partition("?")[0])
            self._answer(answer or {"error": "no such path"}, 200 if answer else 404)

        def do_POST(self) -> None:
            body = self._body()
            image = self.headers.get("x-vlmserve-image", "")
            with engine.lock:
                engine.images[image] += 1
                engine.seen |= {hashlib.sha256(url).hexdigest() for url in re.findall(rb'"url": ?"([^"]*)"', body)}
                engine.requests.append({"headers": dict(self.headers.items()), "bytes": len(body), "image": image})
            if self.path == "/stream":
                self._stream(float(self.headers.get("x-seconds", "1")))
                return
            time.sleep(engine.seconds)
            self._answer({"image": image, "port": engine.port, "bytes": len(body)})

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def _answer(self, value: dict[str, Any], code: int = 200) -> None:
            body = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, seconds: float) -> None:
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for number in range(10):
                text = f"data: {number}\n\n".encode()
                self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
                self.wfile.flush()
                time.sleep(seconds / 10)
            self.wfile.write(b"0\r\n\r\n")

    return Handler
