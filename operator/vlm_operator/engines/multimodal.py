"""For which models a release of SGLang looks at images, from ``multimodal.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import yaml

from vlm_operator.engines.catalogue import versions


def takes_media(architecture: str) -> bool:
    """Whether any catalogued version lists the architecture among models that take images, video or audio."""
    return any(architecture in names for part in _read().values() for names in part.values())


def off_by_itself(architecture: str | None, version: str | None) -> bool:
    """Whether a version turns that model's vision off unless it is told otherwise. An unknown version counts as the newest."""
    order = versions()
    at = order.index(version) if version in order else len(order) - 1
    return any(architecture in names and order.index(since) <= at for since, names in _read()["off_by_itself"].items())


@cache
def _read() -> Mapping[str, Mapping[str, list[str]]]:
    data: dict[str, dict[str, list[str]]] = yaml.safe_load(
        files(__package__).joinpath("multimodal.yaml").read_text("utf-8")
    )
    return data
