"""The video that the workload declares, as the engine samples it for the model."""

from vlm_api.spec import VLMServiceSpec
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.choices import UserChoices
from vlm_operator.sglang.profiles import Family
from vlm_operator.sglang.videos import Clip, Video


def declared_video(spec: VLMServiceSpec, family: Family | None, choices: UserChoices) -> Video | None:
    """One video of ``workload.videos``; None if none are declared or the family's videos are not counted.

    Raises InvalidInput if the processor refuses such videos.
    """
    videos = spec.workload.videos
    if videos is None or family is None or family.videos is None:
        return None
    clip = Clip(videos.seconds, videos.frames_per_second, videos.width, videos.height)
    try:
        return family.videos.limited(choices.get("mm_process_config")).sample(clip, videos.per_request)
    except ValueError as error:
        raise InvalidInput("spec.workload.videos", f"{error}: the engine refuses such videos") from error
