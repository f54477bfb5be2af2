"""The picture of the first request, made without any library."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Final

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


def png(width: int, height: int) -> bytes:
    """An RGB picture of that size in pixels: a gradient from left to right."""
    row = b"\x00" + b"".join(bytes((x * 255 // width, 128, 255 - x * 255 // width)) for x in range(width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(row * height, level=1)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def data_url(width: int, height: int) -> str:
    """The same picture as a data URL."""
    return "data:image/png;base64," + base64.b64encode(png(width, height)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
