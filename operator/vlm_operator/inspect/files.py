"""The model files that are read: config.json, the image processor's, and the size of the weights."""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

CONFIG: Final = "config.json"
UPLOAD_AGAIN: Final = "upload the model's original file again"
PREPROCESSOR: Final = "preprocessor_config.json"
# Since Transformers 5 it may hold the image processor's part instead.
PROCESSOR: Final = "processor_config.json"
INDEX: Final = "model.safetensors.index.json"
WEIGHTS: Final = "model.safetensors"

# The largest config.json on the hub has some 100 KiB; the index of a mixture-of-experts model up to 10 MB.
MAX_CONFIG_BYTES: Final = 1 << 20
MAX_INDEX_BYTES: Final = 16 << 20
# A safetensors file begins with the length of its header, as a little-endian u64.
LENGTH_BYTES: Final = 8


class ModelReadError(Exception):
    """A model's files cannot be read: a key of ``vlm_api.reasons.UNREAD``, and a sentence with the next step."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def parse_config(text: bytes) -> dict[str, Any]:
    """Parses config.json. Raises ModelReadError if it is not a JSON object."""
    if len(text) > MAX_CONFIG_BYTES:
        raise ModelReadError("ModelUnreadable", f"{CONFIG} is larger than {MAX_CONFIG_BYTES:,} bytes: {UPLOAD_AGAIN}")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelReadError("ModelUnreadable", f"{CONFIG} is not JSON: {UPLOAD_AGAIN}") from error
    if not isinstance(config, dict):
        raise ModelReadError("ModelUnreadable", f"{CONFIG} is not a JSON object: {UPLOAD_AGAIN}")
    return config


def bytes_by_index(text: bytes) -> int | None:
    """``metadata.total_size`` of a safetensors index; None if it is missing."""
    try:
        size = json.loads(text)["metadata"]["total_size"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    # Some writers put it as a float.
    return int(size) if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < 10**15 else None


def bytes_by_header(start: bytes, file_bytes: int) -> int | None:
    """Bytes of the tensors in a safetensors file with that size and ``start``; None if it is not one."""
    if len(start) < LENGTH_BYTES:
        return None
    (header,) = struct.unpack("<Q", start[:LENGTH_BYTES])
    size = file_bytes - LENGTH_BYTES - header
    return int(size) if size > 0 else None


# The result has to fit into a termination message of 4,096 bytes.
MAX_PROCESSOR_NUMBERS: Final = 24
_MAX_KEY: Final = 40


def image_processor(read: Callable[[str], bytes | None]) -> dict[str, int] | None:
    """Whole numbers of the image processor, those of inner objects as ``size.longest_edge``; None if no file has any.

    ``read`` returns a file's first MAX_CONFIG_BYTES + 1 bytes; None if there is no such file.
    """
    for name, part in ((PREPROCESSOR, None), (PROCESSOR, "image_processor")):
        text = read(name)
        try:
            found = parse_config(text) if text is not None else {}
        except ModelReadError:
            continue
        numbers = _numbers(found if part is None else found.get(part))
        if numbers:
            return dict(sorted(numbers.items())[:MAX_PROCESSOR_NUMBERS])
    return None


def _numbers(values: Any, prefix: str = "") -> dict[str, int]:
    if not isinstance(values, Mapping):
        return {}
    found: dict[str, int] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and not prefix:
            found |= _numbers(value, f"{key}.")
        elif (
            isinstance(value, int)
            and not isinstance(value, bool)
            and 1 <= value <= 1 << 40
            and len(prefix + key) <= _MAX_KEY
        ):
            found[prefix + key] = value
    return found
