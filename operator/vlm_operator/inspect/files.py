"""What is read of a model, wherever its files are: its config.json, and how many bytes its weights have."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from vlm_operator.inspect.errors import Unread

CONFIG: Final = "config.json"
INDEX: Final = "model.safetensors.index.json"
WEIGHTS: Final = "model.safetensors"

# The largest config.json on the hub has some 100 KiB; the index of a mixture-of-experts model up to 10 MB.
MOST_CONFIG_BYTES: Final = 1 << 20
MOST_INDEX_BYTES: Final = 16 << 20
# A safetensors file begins with the length of its header, as a little-endian u64.
LENGTH_BYTES: Final = 8


def parse_config(text: bytes) -> dict[str, Any]:
    """Raises Unread for what is no JSON object."""
    if len(text) > MOST_CONFIG_BYTES:
        raise Unread("ModelUnreadable", f"{CONFIG} has more than {MOST_CONFIG_BYTES:,} bytes, so it is no such file")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unread("ModelUnreadable", f"{CONFIG} is not JSON: upload the model's own file again") from error
    if not isinstance(config, dict):
        raise Unread("ModelUnreadable", f"{CONFIG} is no JSON object: upload the model's own file again")
    return config


def bytes_by_index(text: bytes) -> int | None:
    """``metadata.total_size`` of an index of safetensors files; None where it is not there."""
    try:
        size = json.loads(text)["metadata"]["total_size"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    # Some writers put it as a float.
    return int(size) if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 10**15 else None


def bytes_by_header(start: bytes, file_bytes: int) -> int | None:
    """Bytes of the tensors in a safetensors file of that size, which begins with ``start``; None where it is none."""
    if len(start) < LENGTH_BYTES:
        return None
    (header,) = struct.unpack("<Q", start[:LENGTH_BYTES])
    size = file_bytes - LENGTH_BYTES - header
    return int(size) if size > 0 else None
