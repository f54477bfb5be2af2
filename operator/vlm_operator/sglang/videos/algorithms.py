"""Every way of sampling by its name, and how ``videos`` of a family's YAML becomes one."""

from collections.abc import Mapping
from typing import Any, Final

from vlm_operator.sglang.images.algorithms import chosen
from vlm_operator.sglang.videos import Sampling
from vlm_operator.sglang.videos.filled_frames import FilledFrames
from vlm_operator.sglang.videos.glm import Glm
from vlm_operator.sglang.videos.glm_canvas import GlmCanvas
from vlm_operator.sglang.videos.qwen import Qwen
from vlm_operator.sglang.videos.single_tiles import SingleTiles
from vlm_operator.sglang.videos.spaced import Spaced
from vlm_operator.sglang.videos.timed_tiles import TimedTiles

SAMPLINGS: Final[Mapping[str, type[Sampling]]] = {
    kind.algorithm: kind for kind in (Qwen, Glm, GlmCanvas, SingleTiles, TimedTiles, FilledFrames, Spaced)
}


def sampling(value: Any) -> Sampling:
    """``videos`` as YAML has it."""
    return value if isinstance(value, Sampling) else chosen(value, SAMPLINGS)
