"""A stand-in for the model hub: the few answers of huggingface.co that the inspector depends on, on a local port."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    """What the hub says to one path."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pause_seconds: float = 0.0
    """Before the answer begins."""
    drip_seconds: float = 0.0
    """Between the single bytes of the body."""


@dataclass
class HubStandIn:
    """``answers``: path -> the answers to come, of which the last stays. What is asked is in ``asked``."""

    address: str = ""
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)

    def says(self, file: str, *answers: Answer, model: str = "org/model", revision: str = "main") -> None:
        self.answers[f"/{model}/resolve/{revision}/{file}"] = list(answers)

    def next(self, path: str) -> Answer:
        known = self.answers.get(path)
        if known is None:
            return Answer(status=404, headers={"X-Error-Code": "EntryNotFound"})
        return known.pop(0) if len(known) > 1 else known[0]


@contextmanager
def hub_stand_in() -> Iterator[HubStandIn]:
    hub = HubStandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.asked.append((self.path, dict(self.headers)))
            answer = hub.next(self.path)
            time.sleep(answer.pause_seconds)
            headers, body, status = dict(answer.headers), answer.body, answer.status
            if status == 200 and (wanted := self.headers.get("Range")) and "No-Ranges" not in headers:
                first, last = map(int, wanted.removeprefix("bytes=").split("-"))
                headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
                status, body = 206, body[first : last + 1]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            try:
                if answer.drip_seconds:
                    for position in range(len(body)):
                        self.wfile.write(body[position : position + 1])
                        time.sleep(answer.drip_seconds)
                self.wfile.write(b"" if answer.drip_seconds else body)
            except OSError:
                return  # the other side has had enough

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
