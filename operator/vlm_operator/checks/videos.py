"""Declared videos that the engine does not take, or that are not counted."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.sglang.memory import MIB
from vlm_operator.sglang.videos.declared import not_read

VIDEOS_PATH: Final = "spec.workload.videos"


# The part of what the engine reserves for activations and graphs that frames of a video may take without a finding. Ours, not
# measured.
QUIET_SHARE: Final = 0.125


def on_gpu(plan: CheckInput) -> Iterator[Finding]:
    """Frames that are decoded and resized on the first GPU, in memory that nothing reserves."""
    context, video, reserved = plan.context, plan.context.video, plan.budget.slack_mib
    sampling = context.family.videos if context.family is not None else None
    if video is None or sampling is None or sampling.prepared_on == "cpu" or reserved is None or not context.cuda:
        return
    mib = (video.decoded_bytes + video.bytes) // MIB
    if mib > reserved * QUIET_SHARE:
        yield info(
            FindingReason.VIDEOS_PREPARED_ON_GPU,
            f"the engine decodes and resizes videos on the first GPU where its decoder can, and one takes about {mib:,} MiB "
            f"there for a moment; the plan counts none of it, and {reserved:,} MiB are reserved for all that is computed. If "
            "the GPU runs out of memory, lower mem_fraction_static, or send shorter or smaller videos",
            VIDEOS_PATH,
        )


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
