"""The image that the workload declares, as the model's processor cuts it."""

from vlm_api.spec import VLMServiceSpec
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.choices import UserChoices
from vlm_operator.sglang.images import Image
from vlm_operator.sglang.profiles import Family


def declared_image(spec: VLMServiceSpec, family: Family | None, choices: UserChoices) -> Image | None:
    """One image of ``workload.images``; None if its size is not declared or the family's images cannot be counted.

    Raises InvalidInput if the processor refuses such images.
    """
    images = spec.workload.images
    if family is None or family.images is None or images.width is None or images.height is None:
        return None
    length = choices.get("context_length")
    told = family.images.limited(choices.get("mm_process_config")).within(
        length if isinstance(length, int) else None, spec.workload.input_tokens or 0
    )
    try:
        return told.cut(images.width, images.height, max(images.per_request, 1))
    except ValueError as error:
        raise InvalidInput(
            "spec.workload.images", f"{error}: the model's image processor refuses such images"
        ) from error
