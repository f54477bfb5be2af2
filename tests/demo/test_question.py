"""The demo's client against a server that speaks as an OpenAI endpoint does."""

import base64
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from demo.question import ask, drawn_png
from demo.screen import DemoError


@contextmanager
def endpoint(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server on a free port; yields its address and the requests that it got."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()


def stream(*pieces: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for delta in ({"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)):
            handler.wfile.write(f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n".encode())
        handler.wfile.write(b"data: [DONE]\n\n")

    return answer


def refuse(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(404)
    handler.end_headers()
    handler.wfile.write(b'{"message": "no model of that name"}')


def test_the_answer_is_shown_piece_by_piece_and_control_letters_stay_off_the_screen() -> None:
    shown: list[str] = []
    with endpoint(stream("a red", " disc\x1b[2J")) as (url, _):
        answer = ask(url, "m", "what?", shown.append)
    assert shown == ["a red", " disc [2J"]
    assert answer.chunks == 2
    assert 0 < answer.first_token_seconds <= answer.total_seconds


def test_the_question_carries_one_picture_that_can_be_decoded() -> None:
    with endpoint(stream("x")) as (url, requests):
        ask(url, "m", "what?", lambda _: None)
    (picture, text) = requests[0]["messages"][0]["content"]
    png = base64.b64decode(picture["image_url"]["url"].removeprefix("data:image/png;base64,"))
    assert (requests[0]["model"], requests[0]["stream"], text["text"]) == ("m", True, "what?")
    assert size_and_rows(png) == (224, 224, 224 * (1 + 3 * 224))
    assert png == drawn_png()


def size_and_rows(png: bytes) -> tuple[int, int, int]:
    """Width, height and the length of the pixel data; checks every chunk's checksum."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    position, chunks = 8, {}
    while position < len(png):
        (length,) = struct.unpack_from(">I", png, position)
        kind, data = png[position + 4 : position + 8], png[position + 8 : position + 8 + length]
        assert struct.unpack_from(">I", png, position + 8 + length) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        position += 12 + length
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    return width, height, len(zlib.decompress(chunks[b"IDAT"]))


def test_a_refusal_is_shown_in_the_server_s_words() -> None:
    with endpoint(refuse) as (url, _), pytest.raises(DemoError, match=r"404.*no model of that name"):
        ask(url, "m", "what?", lambda _: None)


def test_an_answer_without_text_is_an_error() -> None:
    with endpoint(stream()) as (url, _), pytest.raises(DemoError, match="without text"):
        ask(url, "m", "what?", lambda _: None)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(DemoError, match=r"127\.0\.0\.1:9/v1 does not respond"):
        ask("http://127.0.0.1:9/v1", "m", "what?", lambda _: None)
