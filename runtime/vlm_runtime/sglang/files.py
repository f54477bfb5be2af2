"""Refuses paths of files where a request should bring an image, a video or a sound.

SGLang opens ``file:///PATH`` and ``/PATH`` for whoever asks: ``file:///dev/zero`` is read until the memory is full, and
every picture that lies in the pod is described. Runs in the process that serves HTTP.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

# Set to 1 in ``spec.engine.env`` where clients may name files of the pod, such as those of a mounted volume.
ENV_ALLOW: Final = "VLMSERVE_ALLOW_MEDIA_FILES"
_SERVER: Final = "sglang.srt.entrypoints.http_server"
_METHOD: Final = "process_mm_data_async"
_ARGUMENTS: Final = ("image_data", "audio_data", "video_data")
# Longer than any path: a text that is longer holds the content itself.
_LONGEST_PATH: Final = 4096
_REFUSAL: Final = (
    f"files are not taken from requests: send the content as a data: URL, or set {ENV_ALLOW}=1 for the engine"
)

logger = logging.getLogger("vlm_runtime")


def refuse_files() -> None:
    """Called when SGLang's application has started. What a version does differently is one line in the log."""
    if os.environ.get(ENV_ALLOW) == "1":
        return
    try:
        processor = sys.modules[_SERVER].get_global_state().tokenizer_manager.mm_processor
        if processor is not None:
            # On the object, since SGLang's registry takes one plugin's hook for a method, which counts images already.
            setattr(processor, _METHOD, refusing(getattr(processor, _METHOD)))
    except (KeyError, AttributeError) as error:
        logger.warning("vlm-runtime: paths of files in requests are not refused: %s: %s", type(error).__name__, error)


def refusing(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The method, which raises ValueError for a path; SGLang answers that with 400."""

    async def process(*args: Any, **kwargs: Any) -> Any:
        request = kwargs.get("request_obj")
        told = [kwargs.get("image_data", args[0] if args else None), kwargs.get("audio_data")]
        told += [getattr(request, name, None) for name in _ARGUMENTS]
        if any(map(is_path, sources(told))):
            raise ValueError(_REFUSAL)
        return await original(*args, **kwargs)

    return process


def sources(value: Any) -> Iterator[str]:
    """Every text in lists of images, videos and sounds, as they are or with a ``url``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from sources(item)
    elif isinstance(value, dict):
        yield from sources(value.get("url"))
    elif value is not None:
        yield from sources(getattr(value, "url", None))


def is_path(source: str) -> bool:
    """Whether SGLang would open it as a file. What has no scheme is base64 unless such a file is there."""
    start = source[:16].lower()
    if start.startswith(("data:", "http://", "https://")):
        return False
    if start.startswith("file:"):
        return True
    if len(source) > _LONGEST_PATH or "\0" in source:
        return False
    try:
        return source.startswith("/") or os.path.exists(source) or os.path.exists(unquote(urlsplit(source).path))
    except ValueError:
        return False
