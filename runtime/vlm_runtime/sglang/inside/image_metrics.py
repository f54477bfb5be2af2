"""Metrics of the images in requests: how many, how large, how many repeated, how long their preprocessing takes.

Runs in the process that serves HTTP. Only numbers leave this process.
"""

import sys
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, Final

from vlm_runtime.sglang.inside import metric_specs
from vlm_runtime.sglang.inside.failsafe import FailSafe, hook
from vlm_runtime.sglang.inside.feature_pool_metrics import watch_pool

_SERVER: Final = "sglang.srt.entrypoints.http_server"
_METHOD: Final = "process_mm_data_async"
# Longer than any path: a longer text without a scheme is the image itself.
_LONGEST_PATH: Final = 4096
_BITS: Final = 1 << 23
_PROBES: Final = 5


def count_images() -> None:
    """Called when SGLang's application has started: its modules are loaded and its settings resolved."""
    if metric_specs.are_enabled():
        FailSafe("images")(_count_images)
        FailSafe("the feature pool")(_watch_pool)


def _count_images() -> None:
    processor = _processor()
    if processor is not None:
        hook(type(processor), _METHOD, "AROUND", around_preprocessing(ImageCounter()))


def _watch_pool() -> None:
    pool = getattr(_processor(), "cudaipc_mmfeature_pool", None)
    if pool is not None:
        watch_pool(pool)


def _processor() -> Any:
    """The object that preprocesses images; None if the model has none. Raises if SGLang keeps it elsewhere."""
    return sys.modules[_SERVER].get_global_state().tokenizer_manager.mm_processor


class ImageCounter:
    """Counts one request after the other, in the event loop's thread."""

    def __init__(self, registry: Any = None) -> None:
        """``registry``: prometheus_client's, for tests."""
        self._recent = RecentImages()
        self._received = metric_specs.IMAGES_RECEIVED.create(registry)
        self._repeated = metric_specs.IMAGES_REPEATED.create(registry)
        self._bytes = metric_specs.IMAGE_BYTES.create(registry)
        self._feature_bytes = metric_specs.FEATURE_BYTES.create(registry)
        self._per_request = metric_specs.REQUEST_IMAGES.create(registry)
        self._preprocessing = metric_specs.PREPROCESSING.create(registry)

    def count_received(self, images: Any) -> int:
        """Counts a request's images before preprocessing; returns how many."""
        if images is None:
            return 0
        items = images if isinstance(images, list | tuple) else [images]
        if not items:
            return 0
        sources = [source_of(item) for item in items]
        self._received.inc(len(items))
        self._per_request.observe(len(items))
        self._repeated.inc(sum(self._recent.add(source) for source in sources if source is not None))
        self._bytes.inc(sum(map(inline_bytes, sources)))
        return len(items)

    def count_prepared(self, result: Any, seconds: float) -> None:
        """Counts the result of preprocessing."""
        self._preprocessing.observe(seconds)
        self._feature_bytes.inc(feature_bytes(result))


def around_preprocessing(counter: ImageCounter) -> Callable[..., Awaitable[Any]]:
    """SGLang's AROUND hook: the original function comes first, then its own arguments."""
    fail_safe = FailSafe("images")

    async def around(original: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        images = kwargs.get("image_data", args[1] if len(args) > 1 else None)
        count = fail_safe(counter.count_received, images)
        began = time.perf_counter()
        result = await original(*args, **kwargs)
        if count:
            fail_safe(counter.count_prepared, result, time.perf_counter() - began)
        return result

    return around


def source_of(item: Any) -> Hashable:
    """What identifies an image: its text or bytes as sent, or its URL; None if only pixels came."""
    source = getattr(item, "url", item)
    return source if isinstance(source, str | bytes) else None


def inline_bytes(source: Hashable) -> int:
    """The size of an image inside the request (a data URL, base64 or bytes); 0 for a reference."""
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
    if proxy is not None:  # the features are on the GPU already
        return int(proxy["ipc_extra"]["nbytes"])
    return int(getattr(feature, "nbytes", 0))


class RecentImages:
    """Two Bloom filters of 1 MiB each; the older one is dropped when the younger one is full or an hour old.

    Remembers an image for one to two hours, and at least the last ``capacity`` images. When both are full, about 1 of
    8,000 new images counts as known; a known one never counts as new. They hold bits of Python's own hash, keyed anew in
    each process, which reveal nothing about an image.
    """

    def __init__(
        self, capacity: int = 1 << 18, seconds: float = 3600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity = capacity
        self._seconds = seconds
        self._clock = clock
        self._younger, self._older = bytearray(_BITS >> 3), bytearray(_BITS >> 3)
        self._count = 0
        self._born = clock()

    def add(self, content: Hashable) -> bool:
        """Adds the content; True if it was there already."""
        self._age()
        known_young = known_old = True
        for byte, bit in _places(hash(content)):
            known_young = known_young and bool(self._younger[byte] & bit)
            known_old = known_old and bool(self._older[byte] & bit)
            self._younger[byte] |= bit
        self._count += not known_young
        return known_young or known_old

    def _age(self) -> None:
        now = self._clock()
        age = now - self._born
        if age < self._seconds and self._count < self._capacity:
            return
        self._older = self._younger if age < 2 * self._seconds else bytearray(_BITS >> 3)
        self._younger = bytearray(_BITS >> 3)
        self._count = 0
        # Not from now: if images are rare, nothing ran when its time was over.
        self._born = self._born + self._seconds if self._seconds <= age < 2 * self._seconds else now


def _places(value: int) -> Iterator[tuple[int, int]]:
    """The bits of a 64-bit hash: byte and mask."""
    first, step = value & 0xFFFFFFFF, (value >> 32 & 0xFFFFFFFF) | 1
    for probe in range(_PROBES):
        place = (first + probe * step) % _BITS
        yield place >> 3, 1 << (place & 7)
