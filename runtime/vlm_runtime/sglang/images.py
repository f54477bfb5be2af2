"""Counts the images that the engine is given: how many, how large, how often the same, how long they take to prepare.

Runs in the process that serves HTTP. Nothing about an image leaves this process but numbers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

from vlm_runtime.sglang import metrics
from vlm_runtime.sglang.harmless import Harmless, hook
from vlm_runtime.sglang.pool import watch_pool
from vlm_runtime.sglang.sketch import RecentImages

_SERVER: Final = "sglang.srt.entrypoints.http_server"
_METHOD: Final = "process_mm_data_async"
# Longer than any path: a text without a scheme that is longer holds the image itself.
_LONGEST_PATH: Final = 4096


def count_images() -> None:
    """Called when SGLang's application has started: all of its modules are there, its settings are resolved."""
    if metrics.enabled():
        Harmless("images")(_count_images)
        Harmless("the image pool")(_watch_pool)


def _count_images() -> None:
    processor = _processor()
    if processor is not None:
        hook(type(processor), _METHOD, "AROUND", around_preprocessing(ImageCounter()))


def _watch_pool() -> None:
    pool = getattr(_processor(), "cudaipc_mmfeature_pool", None)
    if pool is not None:
        watch_pool(pool)


def _processor() -> Any:
    """The one object that prepares images; None where the model knows none. Raises where SGLang has no such place."""
    return sys.modules[_SERVER].get_global_state().tokenizer_manager.mm_processor


class ImageCounter:
    """Counts one request after the other, in the event loop's thread."""

    def __init__(self, registry: Any = None) -> None:
        """``registry``: prometheus_client's, for tests."""
        self._recent = RecentImages()
        self._received = metrics.IMAGES_RECEIVED.make(registry)
        self._repeated = metrics.IMAGES_REPEATED.make(registry)
        self._bytes = metrics.IMAGE_BYTES.make(registry)
        self._feature_bytes = metrics.FEATURE_BYTES.make(registry)
        self._per_request = metrics.REQUEST_IMAGES.make(registry)
        self._preprocessing = metrics.PREPROCESSING.make(registry)

    def received(self, images: Any) -> int:
        """Counts a request's images before they are prepared; how many there are."""
        if images is None:
            return 0
        items = images if isinstance(images, list | tuple) else [images]
        if not items:
            return 0
        sources = [source_of(item) for item in items]
        self._received.inc(len(items))
        self._per_request.observe(len(items))
        self._repeated.inc(sum(self._recent.saw_before(source) for source in sources if source is not None))
        self._bytes.inc(sum(map(inline_bytes, sources)))
        return len(items)

    def prepared(self, result: Any, seconds: float) -> None:
        """Counts what preprocessing made of them."""
        self._preprocessing.observe(seconds)
        self._feature_bytes.inc(feature_bytes(result))


def around_preprocessing(counter: ImageCounter) -> Callable[..., Awaitable[Any]]:
    """SGLang's AROUND hook: the original function comes first, then its own arguments."""
    harmless = Harmless("images")

    async def around(original: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        images = kwargs.get("image_data", args[1] if len(args) > 1 else None)
        count = harmless(counter.received, images)
        began = time.perf_counter()
        result = await original(*args, **kwargs)
        if count:
            harmless(counter.prepared, result, time.perf_counter() - began)
        return result

    return around


def source_of(item: Any) -> Hashable:
    """What tells an image from another one: its text or bytes as sent, or its URL; None where only pixels came."""
    source = getattr(item, "url", item)
    return source if isinstance(source, str | bytes) else None


def inline_bytes(source: Hashable) -> int:
    """The encoded image's bytes where the request carried it: in a data URL, as base64, or as they are."""
    if isinstance(source, bytes):
        return len(source)
    if not isinstance(source, str) or source.startswith(("http://", "https://", "file://")):
        return 0
    if not source.startswith("data:") and len(source) <= _LONGEST_PATH:
        return 0
    start = source.find(",", 0, 256) + 1
    return (len(source) - start) * 3 // 4 - source.count("=", -2)


def feature_bytes(result: Any) -> int:
    """The bytes of all image features in the result of SGLang's processor."""
    items = result.get("mm_items") if isinstance(result, dict) else getattr(result, "mm_items", None)
    return sum(_bytes_of(item.feature) for item in items or () if item.is_image())


def _bytes_of(feature: Any) -> int:
    if isinstance(feature, list | tuple):
        return sum(map(_bytes_of, feature))
    proxy = getattr(feature, "proxy_state", None)
    if proxy is not None:  # the features lie on the GPU already
        return int(proxy["ipc_extra"]["nbytes"])
    return int(getattr(feature, "nbytes", 0))
