"""What one request may bring. The limits come from the plan, the runtime hands them on in a variable."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from vlm_runtime.sglang.inside import ENV_LIMITS
from vlm_runtime.sglang.inside.image_size import pixels_of

_COMMON: Final = "sglang.srt.utils.common"
_FETCH: Final = "get_image_bytes"
_URLS: Final = ("http://", "https://", "file:")


class Limits(NamedTuple):
    """The largest numbers that are accepted."""

    body_bytes: int
    images: int
    image_pixels: int
    request_pixels: int
    videos: int

    def refuse_videos(self, videos: Any) -> None:
        """Raises ValueError for too many videos."""
        # A list within the list holds the frames of one video.
        count = len(videos) if isinstance(videos, list | tuple) else int(videos is not None)
        if count > self.videos:
            raise ValueError(
                f"the request has {count} videos, and the service accepts {self.videos}: send fewer, or raise "
                "spec.workload.videos.perRequest"
            )

    def refuse_images(self, images: Any, sources: Iterable[str | bytes]) -> None:
        """Raises ValueError for too many images, or too large ones among those that the request itself carries."""
        count = sum(1 for _ in _flat(images))
        if count > self.images:
            raise ValueError(
                f"the request has {count} images, and the service accepts {self.images}: send fewer, or raise "
                "spec.workload.images.perRequest"
            )
        total = sum(map(self.refuse_image, sources))
        if total > self.request_pixels:
            raise ValueError(
                f"the request's images have {total} pixels, and the service accepts {self.request_pixels}: send fewer or "
                "smaller ones, or raise width and height in spec.workload.images"
            )

    def refuse_image(self, source: str | bytes) -> int:
        """The pixels of an image's content, 0 if unknown. Raises ValueError if it is too large."""
        if isinstance(source, str) and source[:8].lower().startswith(_URLS):
            return 0
        pixels = pixels_of(source) or 0
        if pixels > self.image_pixels:
            raise ValueError(
                f"an image has {pixels} pixels, and the service accepts {self.image_pixels}: send a smaller one, or raise "
                "width and height in spec.workload.images"
            )
        return pixels


def limits_of_environment() -> Limits | None:
    """The limits; None if there are none."""
    text = os.environ.get(ENV_LIMITS)
    return Limits(*map(int, text.split(","))) if text else None


def limit_fetched(limits: Limits) -> None:
    """Refuses images that the engine fetches once their bytes are here. Raises KeyError, AttributeError.

    SGLang's modules import the function by name, so it is replaced in each that has it.
    """
    original: Callable[..., Any] = getattr(sys.modules[_COMMON], _FETCH)
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.") and vars(module).get(_FETCH) is original:
            setattr(module, _FETCH, fetching(original, limits))


def fetching(original: Callable[..., Any], limits: Limits) -> Callable[..., Any]:
    """The function, raising ValueError for an image that is too large."""

    def fetch(source: Any, *args: Any, **kwargs: Any) -> Any:
        content = original(source, *args, **kwargs)
        if isinstance(source, str) and not source.startswith("data:"):
            limits.refuse_image(content)
        return content

    return fetch


def _flat(images: Any) -> Iterator[Any]:
    if isinstance(images, list | tuple):
        for image in images:
            yield from _flat(image)
    elif images is not None:
        yield images
