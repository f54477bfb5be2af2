"""The declared image as the model's processor resizes it, with the limits that the engine is told to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vlm_api.spec import VLMServiceSpec
from vlm_operator import memory
from vlm_operator.engines.types import UserChoices
from vlm_operator.errors import InvalidInput
from vlm_operator.profiles import Family

# Names of the limits in ``mm_process_config``: those of Qwen's image processors in Transformers, the older ones beside them.
_LIMITS = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}


def declared_image(spec: VLMServiceSpec, family: Family | None, choices: UserChoices) -> memory.Image | None:
    """The image of ``workload.images`` after resizing; None where its size or the family's processing is not known.

    Raises InvalidInput where the processor refuses such images.
    """
    images = spec.workload.images
    if family is None or images.width is None or images.height is None:
        return None
    processing = replace(family.image_processing, **_limits(choices.get("mm_process_config")))
    try:
        return memory.image_after_resizing(images.width, images.height, processing)
    except ValueError as error:
        raise InvalidInput(
            "spec.workload.images", f"{error}: the model's image processor refuses such images"
        ) from error


def _limits(config: Any) -> dict[str, Any]:
    """``min_pixels`` and ``max_pixels`` as the user's ``mm_process_config`` sets them."""
    image = _map(config).get("image")
    size, found = _map(_map(image).get("size")), dict[str, Any]()
    for name, edge in _LIMITS.items():
        # Written beside each other, the older name wins (image_processing_qwen2_vl.py, _standardize_kwargs).
        for said in (size.get(edge), _map(image).get(name)):
            if isinstance(said, int) and not isinstance(said, bool) and said > 0:
                found[name] = said
    return found


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
