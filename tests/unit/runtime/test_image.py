"""The picture of the first request."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from vlm_runtime.image import data_url


@pytest.mark.parametrize(("width", "height"), [(1, 1), (64, 64), (1920, 1080)])
def test_it_is_a_whole_png_of_the_asked_size(width: int, height: int) -> None:
    head, _, data = data_url(width, height).partition(",")
    assert head == "data:image/png;base64"
    png = base64.b64decode(data)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
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
