"""Sends one image and a question, like an OpenAI client, and streams the answer."""

from __future__ import annotations

import base64
import http.client
import json
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from demo.screen import DemoError


def drawn_png(side: int = 224, shade: int = 0x90) -> bytes:
    """A PNG with a red disc on blue: side x side RGB pixels."""
    rows = bytearray()
    for y in range(side):
        rows.append(0)  # no filter
        for x in range(side):
            inside = (x - side / 2) ** 2 + (y - side / 2) ** 2 < (side / 3) ** 2
            rows += b"\xd0\x30\x30" if inside else bytes((0x20, 0x40, shade))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(rows))) + chunk(b"IEND", b"")
    )


def request_body(model: str, question: str, max_tokens: int, shade: int = 0x90) -> dict[str, object]:
    image = "data:image/png;base64," + base64.b64encode(drawn_png(shade=shade)).decode()
    content = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": question}]
    messages = [{"role": "user", "content": content}]
    return {"model": model, "messages": messages, "max_tokens": max_tokens, "stream": True}


@dataclass
class Answer:
    """Times and chunks of an answer."""

    first_token_seconds: float
    total_seconds: float
    chunks: int


def ask(
    url: str,
    model: str,
    question: str,
    show: Callable[[str], None],
    *,
    max_tokens: int = 48,
    api_key: str = "",
    shade: int = 0x90,
) -> Answer:
    """Sends a request to `url` (such as http://10.96.3.4:8000/v1) and shows each chunk of text.

    Raises DemoError if the engine refuses or sends no text.
    """
    target = urlsplit(url)
    connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=120)
    body = json.dumps(request_body(model, question, max_tokens, shade))
    begun = time.monotonic()
    first, chunks = None, 0
    try:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        connection.request("POST", f"{target.path}/chat/completions", body, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise DemoError(f"{url} returned {response.status}: {response.read()[:300].decode(errors='replace')}")
        for line in response:
            data = line.decode(errors="replace").removeprefix("data:").strip()
            if not data or data == "[DONE]":
                continue
            text = "".join(
                choice.get("delta", {}).get("content") or "" for choice in json.loads(data).get("choices", [])
            )
            if text:
                first = first or time.monotonic() - begun
                chunks += 1
                show("".join(letter if letter.isprintable() else " " for letter in text))
    except OSError as error:
        raise DemoError(f"{url} does not respond: {error}") from error
    finally:
        connection.close()
    if first is None:
        raise DemoError(f"{url} sent an answer without text")
    return Answer(first, time.monotonic() - begun, chunks)
