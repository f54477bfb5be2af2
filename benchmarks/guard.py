"""What the plugin's checks cost a request: the guard, the body's limit and the look at its images, without an engine.

    python benchmarks/guard.py [--rounds 200]

The request is one of SGLang's chat completions whose images of 1 MB are base64 in data: URLs, in pieces of 64 KiB as Uvicorn
hands them on. Prints the median processor time of a request with each part, less that of the same application bare, and beside it
what SGLang does with the same body in any case: parse its JSON and decode its base64.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import statistics
import struct
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

from vlm_runtime.sglang.inside.body_limit import BodyLimit
from vlm_runtime.sglang.inside.guard import Guard
from vlm_runtime.sglang.inside.limits import Limits
from vlm_runtime.sglang.inside.media_files import refusing

LIMITS = Limits(body_bytes=64 << 20, images=32, image_pixels=100_000_000, request_pixels=400_000_000, videos=32)
PIECE = 65_536
IMAGE_BYTES = 1_000_000
SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/v1/chat/completions",
    "root_path": "",
    "client": ("192.0.2.1", 1),
    "server": ("192.0.2.2", 8000),
    "headers": [(b"host", b"tiny:8000"), (b"content-type", b"application/json"), (b"authorization", b"Bearer sk")],
}


def jpeg() -> bytes:
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, 1080, 1920, 3) + bytes(9)
    tables = 4 * (b"\xff\xc4" + struct.pack(">H", 181) + bytes(179)) + b"\xff\xda"
    return (b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + frame + tables).ljust(IMAGE_BYTES, b"\x5a")


def png() -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", 1920, 1080, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return content.ljust(IMAGE_BYTES, b"\x5a")


def webp() -> bytes:
    frame = b"\x10\x02\x00\x9d\x01\x2a" + struct.pack("<HH", 1920, 1080)
    head = b"RIFF" + struct.pack("<I", IMAGE_BYTES - 8) + b"WEBPVP8 " + struct.pack("<I", IMAGE_BYTES - 20)
    return (head + frame).ljust(IMAGE_BYTES, b"\x5a")


def median_us(ask: Callable[[], Any], rounds: int) -> float:
    ask()
    taken = []
    for _ in range(rounds):
        start = time.process_time_ns()
        ask()
        taken.append((time.process_time_ns() - start) / 1000)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    print("images  format  guard us  body limit us  images us  together us  the engine's JSON and base64 us")
    for count in (1, 32):
        for name, content in (("JPEG", jpeg()), ("PNG", png()), ("WebP", webp())):
            print(row(count, name, content, rounds))


def row(count: int, name: str, content: bytes, rounds: int) -> str:
    url = "data:image/any;base64," + base64.b64encode(content).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}] * count
    body = json.dumps({"messages": [{"role": "user", "content": parts}]}).encode()
    pieces = [body[at : at + PIECE] for at in range(0, len(body), PIECE)]
    loop = asyncio.new_event_loop()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    def through(asgi: Any) -> float:
        async def ask() -> None:
            left = iter(range(len(pieces)))

            async def receive() -> Any:
                position = next(left)
                return {"type": "http.request", "body": pieces[position], "more_body": position + 1 < len(pieces)}

            async def send(message: Any) -> None:
                pass

            await asgi(SCOPE, receive, send)

        return median_us(lambda: loop.run_until_complete(ask()), rounds)

    async def process(**request: Any) -> None:
        pass

    def prepare(method: Any) -> float:
        images = [url] * count
        return median_us(lambda: loop.run_until_complete(method(image_data=images, request_obj=None)), rounds)

    bare, bare_images = through(app), prepare(process)
    guard = through(Guard(app, "/nowhere/draining")) - bare
    limit = through(BodyLimit(app, LIMITS.body_bytes)) - bare
    images = prepare(refusing(process, LIMITS)) - bare_images
    engine = median_us(
        lambda: [
            base64.b64decode(p["image_url"]["url"].partition(",")[2])
            for p in json.loads(body)["messages"][0]["content"]
        ],
        max(rounds // 20, 3),
    )
    return f"{count:6}  {name:6}  {guard:8.0f}  {limit:13.0f}  {images:9.0f}  {guard + limit + images:11.0f}  {engine:9.0f}"


if __name__ == "__main__":
    sys.exit(main())
