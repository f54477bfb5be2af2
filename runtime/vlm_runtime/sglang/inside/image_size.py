"""The size of an encoded image, read from its header: nothing is decoded, and of base64 only the bytes that are asked for."""

import base64
import io
from importlib import import_module
from typing import Any, Final

# Markers of a JPEG that stand alone, those that carry its size, and the one before its pixels.
_ALONE: Final = frozenset({0x01, 0xFF, *range(0xD0, 0xD9)})
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SCAN: Final = 0xDA
# A camera's file has some dozens of segments before its pixels; one of colour profiles at most a few hundred.
_MOST_SEGMENTS: Final = 4096


class UnreadableImage(ValueError):
    """An image whose size cannot be told, and which the engine might decode all the same."""


class _Encoded:
    """Bytes that are asked for by position, of bytes or of base64."""

    def __init__(self, source: str | bytes) -> None:
        self._source = source
        self._start = source.find(",") + 1 if isinstance(source, str) and source.startswith("data:") else 0

    def __call__(self, position: int, count: int) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[position : position + count]
        begin = self._start + position // 3 * 4
        text = self._source[begin : self._start + -(-(position + count) // 3) * 4]
        return base64.b64decode(text + "=" * (-len(text) % 4))[position % 3 :][:count]

    def whole(self) -> bytes:
        """All of it."""
        return self._source if isinstance(self._source, bytes) else base64.b64decode(self._source[self._start :])


def pixels_of(source: str | bytes) -> int | None:
    """Width times height of an image: its bytes, a data: URL or base64. None if the engine cannot decode it either.

    Raises UnreadableImage.
    """
    read = _Encoded(source)
    try:
        head = read(0, 30)
        if head.startswith(b"\xff\xd8"):
            return _jpeg_pixels(read)
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return _png_pixels(read)
        if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and (pixels := _webp_pixels(head)):
            return pixels
        return _pixels_by_pillow(read.whole())
    except UnreadableImage:
        raise
    except ValueError:  # no base64
        return None


def _jpeg_pixels(read: _Encoded) -> int | None:
    # As Pillow and libjpeg do, bytes between segments are skipped. Of several sizes, a decoder may take any.
    position, most = 2, None
    for _ in range(_MOST_SEGMENTS):
        segment = read(position, 9)
        if len(segment) < 9:
            return most
        if segment[0] != 0xFF:
            position += 1
        elif segment[1] in _ALONE:
            position += 1 if segment[1] == 0xFF else 2
        elif segment[1] == _SCAN:
            return most
        else:
            if segment[1] in _FRAMES:
                # A height of 0 comes after the first scan.
                pixels = (_number(segment[5:7], "big") or 0xFFFF) * _number(segment[7:9], "big")
                most = max(most or 0, pixels)
            position += 2 + _number(segment[2:4], "big")
    raise UnreadableImage("the size of a JPEG cannot be read: save it anew, without its metadata")


def _png_pixels(read: _Encoded) -> int | None:
    # Pillow takes the last of several headers, wherever it stands before the pixels.
    position, most = 8, None
    for _ in range(_MOST_SEGMENTS):
        chunk = read(position, 16)
        if len(chunk) < 16 or chunk[4:8] == b"IDAT":
            return most
        if chunk[4:8] == b"IHDR":
            most = max(most or 0, _number(chunk[8:12], "big") * _number(chunk[12:16], "big"))
        position += 12 + _number(chunk[:4], "big")
    raise UnreadableImage("the size of a PNG cannot be read: save it anew, without its metadata")


def _webp_pixels(head: bytes) -> int | None:
    """None: it begins in another way than libwebp's own files."""
    kind = head[12:16]
    if kind == b"VP8X":
        return (_number(head[24:27]) + 1) * (_number(head[27:30]) + 1)
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        return (_number(head[26:28]) & 0x3FFF) * (_number(head[28:30]) & 0x3FFF)
    if kind == b"VP8L" and head[20] == 0x2F:
        bits = _number(head[21:25])
        return ((bits & 0x3FFF) + 1) * ((bits >> 14 & 0x3FFF) + 1)
    return None


def _pixels_by_pillow(content: bytes) -> int | None:
    pillow: Any = import_module("PIL.Image")
    try:
        with pillow.open(io.BytesIO(content)) as image:
            return int(image.width * image.height)
    except pillow.DecompressionBombError as error:
        raise UnreadableImage(str(error)) from None
    except Exception:  # the engine says what is wrong with it
        return None


def _number(data: bytes, order: Any = "little") -> int:
    return int.from_bytes(data, order)
