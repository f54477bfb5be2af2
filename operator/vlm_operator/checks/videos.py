"""Declared videos that the engine does not take, or that are not counted."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.sglang.videos.declared import not_read

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
    keys = [] if family is None else not_read(family, context.choices)
    if family is None:
        why = "its family is unknown"
    elif keys:
        why = f"mm_process_config.video sets {', '.join(keys)}"
    else:
        why = family.uncounted_videos or "how the engine samples them is not written down"
    yield info(
        FindingReason.VIDEOS_NOT_COUNTED,
        f"videos of {model} are not counted ({why}), so the feature pool, KV cache, /dev/shm and host memory are planned without "
        "them; leave room, or set spec.sharedMemorySize and engine.settings yourself",
        VIDEOS_PATH,
    )
