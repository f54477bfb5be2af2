"""Clients that stream answers about images, each image new; and what became of each request."""

from __future__ import annotations

import base64
import http.client
import json
import os
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


def random_png(side: int) -> bytes:
    """side x side pixels of RGB noise, stored without compression, so that no image comes twice and making one is cheap."""
    rows = b"".join(b"\0" + os.urandom(3 * side) for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


@dataclass(frozen=True)
class Load:
    """What is asked, and where: ``url`` is ``http://HOST:PORT``."""

    url: str
    model: str
    tokens: int = 20
    image_side: int = 64

    def body(self) -> bytes:
        """A request with an image that no other request has."""
        url = "data:image/png;base64," + base64.b64encode(random_png(self.image_side)).decode()
        content = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": "What is in this picture?"},
        ]
        question = {"model": self.model, "messages": [{"role": "user", "content": content}], "max_tokens": self.tokens}
        return json.dumps({**question, "stream": True, "temperature": 0, "ignore_eos": True}).encode()


@dataclass(frozen=True)
class Request:
    """One request. Times in seconds of the monotonic clock."""

    began: float
    ended: float
    outcome: str
    """``ok``; ``refused`` (no connection, or none that answered); ``status 503``; ``cut`` (200, but no end)."""
    first_token_seconds: float = 0.0
    detail: str = ""


class Client:
    """Asks one question after the other: each over a new connection, or with ``keep_alive`` over one until that ends."""

    def __init__(self, load: Load, *, keep_alive: bool = False, timeout_seconds: float = 120.0) -> None:
        self._load = load
        self._keep_alive = keep_alive
        target = urlsplit(load.url)
        # It connects by itself where it has no connection.
        self._connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=timeout_seconds)
        self.connections = 0
        """How many it began."""

    def ask(self) -> Request:
        """One question. Never raises: what went wrong is the outcome."""
        body = self._load.body()
        if self._connection.sock is None:
            self.connections += 1
        began = time.monotonic()
        request = self._ask(body, began)
        if not self._keep_alive or request.outcome != "ok":
            self._connection.close()
        return request

    def _ask(self, body: bytes, began: float) -> Request:
        try:
            self._connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            return Request(began, time.monotonic(), "refused", detail=repr(error))
        if response.status != 200:
            detail = response.read(300).decode(errors="replace")
            return Request(began, time.monotonic(), f"status {response.status}", detail=detail)
        return _read(response, began)


def _read(response: http.client.HTTPResponse, began: float) -> Request:
    first, seen = 0.0, 0
    try:
        for line in response:
            if line.startswith(b"data: [DONE]"):
                ended = time.monotonic()
                response.read()  # what follows belongs to this answer too
                return Request(began, ended, "ok", first)
            if line.startswith(b"data:"):
                first, seen = first or time.monotonic() - began, seen + 1
        why = "the connection ended"
    except (OSError, http.client.HTTPException) as error:
        why = repr(error)
    return Request(began, time.monotonic(), "cut", first, f"{why} after {seen} chunks")


@dataclass
class Streams:
    """``count`` clients that ask one question after the other until they are told to stop."""

    load: Load
    count: int
    on_failure: Callable[[Request], None] = lambda _: None
    keep_alive: bool = False
    done: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._clients = [Client(self.load, keep_alive=self.keep_alive) for _ in range(self.count)]
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(self.count)]

    def __enter__(self) -> Streams:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        """Waits until the last answers have come."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        # Not all at once: ends and beginnings then lie everywhere in an update.
        self._stop.wait(number * 0.3)
        client = self._clients[number]
        while not self._stop.is_set():
            request = client.ask()
            self.done.append(request)
            if request.outcome != "ok":
                self.on_failure(request)
                self._stop.wait(0.2)

    def outcomes(self) -> Counter[str]:
        """How many requests ended in which way."""
        return Counter(request.outcome for request in self.done)

    def connections(self) -> int:
        """How many were begun."""
        return sum(client.connections for client in self._clients)

    def cut(self) -> int:
        """Streams that began and did not end."""
        return self.outcomes()["cut"]

    def failed(self) -> int:
        """Requests that got no stream at all."""
        return sum(n for outcome, n in self.outcomes().items() if outcome not in ("ok", "cut"))
