"""The video that the workload declares, as the engine samples it for the model."""

from vlm_api.spec import VLMServiceSpec
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.choices import UserChoices
from vlm_operator.sglang.images import Image
from vlm_operator.sglang.profiles import Family
from vlm_operator.sglang.videos import Clip, Video


def declared_video(
    spec: VLMServiceSpec, family: Family | None, choices: UserChoices, image: Image | None, context_length: int | None
) -> Video | None:
    """One video of ``workload.videos``, in requests that have ``image`` too; None if no videos are declared or they are not
    counted.

    ``context_length``: that of the model, which the user may change. Raises InvalidInput if the processor refuses such videos.
    """
    workload, videos = spec.workload, spec.workload.videos
    if videos is None or family is None or family.videos is None or not_read(family, choices):
        return None
    clip = Clip(videos.seconds, videos.frames_per_second, videos.width, videos.height)
    length = choices.get("context_length")
    images = workload.images.per_request * image.prompt_tokens if image is not None else 0
    told = family.videos.limited(choices.get("mm_process_config")).beside(
        length if isinstance(length, int) else context_length, (workload.input_tokens or 0) + images
    )
    try:
        return told.sample(clip, videos.per_request)
    except ValueError as error:
        raise InvalidInput("spec.workload.videos", f"{error}: the engine refuses such videos") from error


def not_read(family: Family, choices: UserChoices) -> list[str]:
    """Keys of the user's ``mm_process_config.video`` that change videos in a way that is not counted."""
    return family.videos.unread(choices.get("mm_process_config")) if family.videos is not None else []
