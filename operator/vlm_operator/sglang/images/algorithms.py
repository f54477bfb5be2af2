"""Every algorithm by its name, and how ``images`` of a family's YAML becomes one."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from vlm_api.problems import nearest, problems
from vlm_operator.sglang.images import Cutting, Processing
from vlm_operator.sglang.images.aligned_canvas import AlignedCanvas
from vlm_operator.sglang.images.any_resolution import AnyResolution
from vlm_operator.sglang.images.best_canvas import BestCanvas
from vlm_operator.sglang.images.canvas import Canvas
from vlm_operator.sglang.images.context_budget import ContextBudget
from vlm_operator.sglang.images.filled_budget import FilledBudget
from vlm_operator.sglang.images.fixed import Fixed
from vlm_operator.sglang.images.longest_edge import LongestEdge
from vlm_operator.sglang.images.longest_side import LongestSide
from vlm_operator.sglang.images.native import Native
from vlm_operator.sglang.images.nearest_grid import NearestGrid
from vlm_operator.sglang.images.padded_tiles import PaddedTiles
from vlm_operator.sglang.images.page_tiles import PageTiles
from vlm_operator.sglang.images.slices import Slices
from vlm_operator.sglang.images.smart_resize import SmartResize
from vlm_operator.sglang.images.tiles import Tiles
from vlm_operator.sglang.images.tiles_or_whole import TilesOrWhole
from vlm_operator.sglang.images.windows import Windows

ALGORITHMS: Final[Mapping[str, type[Cutting]]] = {
    kind.algorithm: kind
    for kind in (
        SmartResize, LongestEdge, LongestSide, Native, AlignedCanvas, NearestGrid, FilledBudget, ContextBudget, Fixed,
        Tiles, TilesOrWhole, Canvas, BestCanvas, PageTiles, PaddedTiles, Slices, Windows, AnyResolution,
    )
}  # fmt: skip


Kind = TypeVar("Kind", bound=Processing)


def cutting(value: Any) -> Cutting:
    """``images`` as YAML has it; without ``algorithm`` it is that of Qwen-VL, the first that there was."""
    return value if isinstance(value, Cutting) else chosen(value, ALGORITHMS, SmartResize.algorithm)


def chosen(value: Any, kinds: Mapping[str, type[Kind]], usual: str | None = None) -> Kind:
    """The parameters of the algorithm that ``value`` names, ``usual`` if it names none."""
    if not isinstance(value, Mapping):
        raise PydanticCustomError("rule", "must be a map of fields to values")
    numbers = dict(value)
    name = numbers.pop("algorithm", usual)
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        near = nearest(str(name), tuple(kinds))
        hint = f"did you mean {near}?" if near else f"known are {', '.join(kinds)}"
        raise _wrong("algorithm", f"there is no algorithm of that name: {hint}")
    try:
        made = kind.model_validate(numbers)
    except ValidationError as error:
        first = problems(error, kind)[0]
        raise _wrong(first.path, first.message) from None
    for key, field in made.limits.items():
        if field not in kind.model_fields:
            raise _wrong(f"limits.{key}", f"{kind.algorithm} has no field {field}")
    return made


def _wrong(field: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("rule", "{text}", {"text": text, "field": field})
