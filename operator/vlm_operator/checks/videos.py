"""Declared videos that the engine does not take, or that are not counted."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput

VIDEOS_PATH: Final = "spec.workload.videos"


def videos(plan: CheckInput) -> Iterator[Finding]:
    """What a plan with declared videos leaves out."""
    context = plan.context
    family, model = context.family, context.model.architecture or context.spec.model.uri
    if context.spec.workload.videos is None or context.video is not None:
        return
    if family is not None and not family.takes_videos:
        yield warning(
            FindingReason.VIDEOS_NOT_TAKEN,
            f"the engine takes no videos for {model}: it refuses such requests, or answers them as if there were none; choose "
            "another model, or remove workload.videos",
            VIDEOS_PATH,
        )
        return
    why = "its family is unknown" if family is None else family.uncounted_videos or "its family says nothing about them"
    yield info(
        FindingReason.VIDEOS_NOT_COUNTED,
        f"videos of {model} are not counted ({why}), so the feature pool, KV cache, /dev/shm and host memory are planned without "
        "them; leave room, or set spec.sharedMemorySize and engine.settings yourself",
        VIDEOS_PATH,
    )
