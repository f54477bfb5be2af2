"""Which CUDA an engine's image needs, and which CUDA a driver runs."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from vlm_operator.engines.catalogue import known, newest
from vlm_operator.engines.selection import REPOSITORY, version_of_tag

Cuda = tuple[int, int]

# v0.5.19-cu129, v0.5.12-cu13-runtime.
_IN_TAG: Final = re.compile(r"[-.]cu(\d{2})(\d?)(?![0-9a-z])")
# What a tag of SGLang's own images may add to the version without changing what the image is built for.
_SAME: Final = re.compile(r"v?[0-9.]+(?:[.-]?post[0-9]+)?(?:-runtime)?")


@lru_cache(maxsize=256)
def image_cuda(image: str) -> Cuda | None:
    """The CUDA that an image is built for; None where neither its tag nor ``known.yaml`` says so.

    A tag that names it wins. Otherwise it is known for SGLang's own images, in whatever registry a copy of them lies.
    """
    name = image.partition("@")[0]
    repository, _, tag = name.rpartition(":")
    if found := _IN_TAG.search(tag):
        return int(found[1]), int(found[2] or 0)
    version = version_of_tag(image)
    own = repository == REPOSITORY or repository.endswith(f"/{REPOSITORY}")
    if version is None or not own or not _SAME.fullmatch(tag) or _order(version) > _order(newest()):
        return None
    rows: list[dict[str, Any]] = [row for row in known()["image_cuda"] if _order(row["since"]) <= _order(version)]
    return _cuda(rows[-1]["cuda"]) if rows else None


# Words in the tags of SGLang's images for other hardware than NVIDIA's GPUs.
OTHER_HARDWARE: Final = ("rocm", "xpu", "xeon", "cann", "npu", "musa", "tpu")


def other_hardware(image: str) -> str | None:
    """The word in an image's tag that says it is built for other hardware than NVIDIA's GPUs; None where none does."""
    tag = image.partition("@")[0].rpartition(":")[2]
    words = re.findall(r"[a-z]+", tag.lower())
    return next((word for word in OTHER_HARDWARE if word in words), None)


def driver_cuda(driver: str | None) -> Cuda | None:
    """The newest CUDA, to its major version, that a driver such as ``535.104.05`` is sure to run; None when unknown."""
    found = re.match(r"([0-9]{3,4})(?:\.|$)", driver or "")
    if found is None:
        return None
    rows: list[dict[str, Any]] = [row for row in known()["driver_cuda"] if row["driver"] <= int(found[1])]
    return _cuda(rows[-1]["cuda"]) if rows else None


def _cuda(text: str) -> Cuda:
    major, minor = text.split(".")
    return int(major), int(minor)


def _order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)]
