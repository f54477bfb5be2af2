"""The first image request, and whether its answer is about the image.

If vision is off or the model has none, SGLang refuses images from 0.5.17 on. Before, it drops them silently and answers all
the same; the chat template may leave a marker in place of the image. An image that the model sees adds its own tokens to
the prompt.
"""

import base64
import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

from vlm_runtime.sglang.client import Answer, EngineClient, EngineUnreachable

# What a chat template writes for an image: at most three of the model's tokens in all families checked (Qwen: start, image,
# end). The smallest image is 4 tokens and its markers (Qwen2.5-VL, 64 x 64 pixels), so a few more tokens prove nothing.
MOST_MARKER_TOKENS: Final = 8
# entrypoints/openai/serving_chat.py
TEXT_ONLY: Final = b"only supports text input"

TEXT: Final = {"type": "text", "text": "What is in this picture?"}
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


def image_content(width: int, height: int) -> list[dict[str, Any]]:
    """A question about a generated image of that size in pixels."""
    return [{"type": "image_url", "image_url": {"url": data_url(width, height)}}, TEXT]


def data_url(width: int, height: int) -> str:
    """An RGB gradient of that size in pixels, as a data URL of a PNG. Needs no library."""
    row = b"\x00" + b"".join(bytes((x * 255 // width, 128, 255 - x * 255 // width)) for x in range(width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(row * height, level=1)
    png = _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def has_choices(answer: Answer) -> bool:
    """Whether it is a chat completion, whatever it says."""
    if answer.status != 200:
        return False
    try:
        return bool(answer.json()["choices"])
    except (ValueError, KeyError, TypeError):
        return False


def prompt_tokens(answer: Answer) -> int | None:
    """The engine's count of the prompt's tokens; None if it does not say."""
    try:
        count = answer.json()["usage"]["prompt_tokens"]
    except (ValueError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def explain_ignored_image(
    client: EngineClient, model: str, answer: Answer, *, timeout_seconds: float, log: Callable[[str], None]
) -> str | None:
    """Why ``answer`` cannot be about the image, as a sentence; None if the model saw the image, or nobody can tell.

    Needs two signs: the prompt with the image is hardly longer than the one without, and the engine does not say that its
    model understands images.
    """
    with_image = prompt_tokens(answer)
    if with_image is None:
        log("cannot check that the model saw the first image: the engine did not count the prompt's tokens")
        return None
    try:
        plain = client.chat(model, [TEXT], timeout_seconds=timeout_seconds)
    except EngineUnreachable as error:
        log(f"cannot check that the model saw the first image: {error}")
        return None
    without = prompt_tokens(plain) if has_choices(plain) else None
    if without is None:
        log(f"cannot check that the model saw the first image: the request without it was answered with {plain.status}")
        return None
    if with_image - without > MOST_MARKER_TOKENS or client.understands_images() is True:
        return None
    return (
        f"The engine answered an image request without the image: the prompt has {with_image} tokens with the image and "
        f"{without} without it, and the engine does not report that its model understands images."
    )
