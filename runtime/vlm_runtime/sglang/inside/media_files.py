"""Refuses file paths in place of an image, a video or a sound in a request, and more or larger images than the service takes.

SGLang opens ``file:///PATH`` and ``/PATH`` for any client: it reads ``file:///dev/zero`` until the memory is full, and
describes every picture in the pod. A flat JPEG of 17 MB has 13 GB of pixels. Runs in the process that serves HTTP, before
anything is opened or decoded.
"""

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from vlm_api.names import ENV_MEDIA_FILES
from vlm_runtime.sglang.inside.limits import Limits, limit_fetched, limits_of_environment

_SERVER: Final = "sglang.srt.entrypoints.http_server"
_METHOD: Final = "process_mm_data_async"
_ARGUMENTS: Final = ("image_data", "audio_data", "video_data")
# Longer than any path: a longer text is the content itself.
_LONGEST_PATH: Final = 4096
_REFUSAL: Final = (
    f"requests may not name files: send the content as a data: URL, or set {ENV_MEDIA_FILES}=1 for the engine"
)
_SCHEMES: Final = ("data:", "http://", "https://")
_BAD_SCHEME: Final = f"requests may use URLs with {', '.join(_SCHEMES)} only, in lower case"

logger = logging.getLogger("vlm_runtime")


def refuse_media() -> None:
    """Called when SGLang's application has started. Logs one line if this release cannot be hooked."""
    limits = limits_of_environment()
    try:
        processor = sys.modules[_SERVER].get_global_state().tokenizer_manager.mm_processor
        if processor is not None:
            # On the object: SGLang's registry takes one hook per method, and image_metrics has it.
            allow = os.environ.get(ENV_MEDIA_FILES) == "1"
            setattr(processor, _METHOD, refusing(getattr(processor, _METHOD), limits, allow_files=allow))
            if limits is not None:
                limit_fetched(limits)
    except (KeyError, AttributeError) as error:
        logger.warning("vlm-runtime: files and large images are not refused: %s: %s", type(error).__name__, error)


def refusing(
    original: Callable[..., Awaitable[Any]], limits: Limits | None = None, *, allow_files: bool = False
) -> Callable[..., Awaitable[Any]]:
    """The method, raising ValueError for a path, and for images and videos beyond the limits; SGLang answers that with 400."""

    async def process(*args: Any, **kwargs: Any) -> Any:
        images = kwargs.get("image_data", args[0] if args else None)
        values = [images, kwargs.get("audio_data")]
        values += [getattr(kwargs.get("request_obj"), name, None) for name in _ARGUMENTS]
        for source in sources(values):
            if is_path(source):
                if not allow_files:
                    raise ValueError(_REFUSAL)
            elif has_other_scheme(source):
                raise ValueError(_BAD_SCHEME)
        if limits is not None:
            limits.refuse_images(images, sources(images))
            limits.refuse_videos(getattr(kwargs.get("request_obj"), "video_data", None))
        return await original(*args, **kwargs)

    return process


def sources(value: Any) -> Iterator[str]:
    """Every text in images, videos and sounds under any key: some processors open ``video_path`` and others."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            if not isinstance(item, int | float):  # embeddings are long lists of numbers
                yield from sources(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from sources(item)
    elif value is not None:
        yield from sources(getattr(value, "url", None))


def is_path(source: str) -> bool:
    """Whether SGLang would open it as a file. Without a scheme it is base64 unless such a file exists."""
    if source.startswith(_SCHEMES):
        return False
    if source[:5].lower() == "file:":
        return True
    if len(source) > _LONGEST_PATH or "\0" in source:
        return False
    try:
        return source.startswith("/") or os.path.exists(source) or os.path.exists(unquote(urlsplit(source).path))
    except ValueError:
        return False


def has_other_scheme(source: str) -> bool:
    """Whether FFmpeg might open it: ``HTTP://``, ``concat:``, ``rtsp:`` and dozens more. Base64 has no colon."""
    return not source.startswith(_SCHEMES) and ":" in source
