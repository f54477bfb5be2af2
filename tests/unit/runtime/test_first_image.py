"""The first image request, and whether the model saw the image."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import pytest

from vlm_runtime.sglang.client import Answer, EngineUnreachable
from vlm_runtime.sglang.first_image import data_url, explain_ignored_image, has_choices


@pytest.mark.parametrize(("width", "height"), [(1, 1), (64, 64), (1920, 1080)])
def test_the_image_is_a_complete_png_of_the_requested_size(width: int, height: int) -> None:
    head, _, data = data_url(width, height).partition(",")
    assert head == "data:image/png;base64"
    png = base64.b64decode(data)
    chunks: dict[bytes, bytes] = {}
    rest = png[8:]
    while rest:
        (length,), kind = struct.unpack(">I", rest[:4]), rest[4:8]
        body, (crc,) = rest[8 : 8 + length], struct.unpack(">I", rest[8 + length : 12 + length])
        assert zlib.crc32(kind + body) == crc
        chunks[kind], rest = body, rest[12 + length :]
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (width, height, 8, 2, 0, 0, 0)
    assert len(zlib.decompress(chunks[b"IDAT"])) == height * (1 + 3 * width)


def completion(tokens: object) -> Answer:
    body = {"choices": [1], **({} if tokens is None else {"usage": {"prompt_tokens": tokens}})}
    return Answer(200, json.dumps(body).encode())


class Engine:
    """Answers the request without an image."""

    def __init__(self, plain: Answer | EngineUnreachable, understands: bool | None) -> None:
        self.plain, self.understands = plain, understands

    def chat(self, model: str, content: object, *, timeout_seconds: float) -> Answer:
        if isinstance(self.plain, EngineUnreachable):
            raise self.plain
        return self.plain

    def understands_images(self) -> bool | None:
        return self.understands


def explain(answer: Answer, engine: Any) -> tuple[str | None, list[str]]:
    logged: list[str] = []
    return explain_ignored_image(engine, "vlm", answer, timeout_seconds=1.0, log=logged.append), logged


@pytest.mark.parametrize("understands", [False, None], ids=["says so", "does not say"])
def test_an_engine_that_drops_images_is_explained(understands: bool | None) -> None:
    problem, _ = explain(completion(15), Engine(completion(14), understands))
    assert problem is not None
    assert "15 tokens with the image and 14 without it" in problem


@pytest.mark.parametrize(
    ("with_image", "plain", "understands", "logged"),
    [
        (78, completion(14), None, ""),
        (15, completion(14), True, ""),
        (None, completion(14), None, "did not count the prompt's tokens"),
        (True, completion(14), None, "did not count the prompt's tokens"),
        (15, Answer(400, b"{}"), None, "answered with 400"),
        (15, EngineUnreachable("/v1/chat/completions: TimeoutError"), None, "TimeoutError"),
    ],
    ids=["many tokens", "understands images", "no count", "not a number", "needs an image", "no answer"],
)
def test_without_two_signs_the_engine_serves(
    with_image: object, plain: Answer | EngineUnreachable, understands: bool | None, logged: str
) -> None:
    problem, lines = explain(completion(with_image), Engine(plain, understands))
    assert problem is None
    assert len(lines) == bool(logged)
    assert logged in "".join(lines)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [1]'])
def test_only_a_chat_completion_is_an_answer(body: bytes) -> None:
    assert not has_choices(Answer(200, body))
    assert not has_choices(Answer(503, b'{"choices": [1]}'))
