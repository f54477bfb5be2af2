"""What is unknown about the model, or contradicts its files, and whether the engine accepts images for it."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.facts.model.lookup import READABLE, known_parameters, real_architecture
from vlm_operator.sglang.catalogue.releases import takes_media
from vlm_operator.sglang.rules.traffic import MULTIMODAL

ARCHITECTURE_PATH: Final = "spec.model.architecture"
# A model's name rounds its size, and the spec has whole billions: Qwen3-VL-8B has 8.77.
ROUNDED: Final = 0.1


def identity(plan: CheckInput) -> Iterator[Finding]:
    """An unknown model or family, or an architecture that the model's files contradict."""
    context, spec = plan.context, plan.context.spec
    real = real_architecture(spec.model, plan.model_files)
    if context.model.architecture is None:
        unread = "" if spec.model.uri.startswith(READABLE) else " (files inside images are not read)"
        yield info(
            FindingReason.MODEL_UNKNOWN,
            f"nothing is known about {spec.model.uri}{unread}, so no profile of a model family applies; "
            "set spec.model.architecture and parametersBillion (the model's config.json and model card have both)",
            ARCHITECTURE_PATH,
        )
    elif spec.model.architecture and real not in (None, spec.model.architecture):
        yield warning(
            FindingReason.ARCHITECTURE_DIFFERS,
            f"spec.model.architecture is {spec.model.architecture}, which the plan uses, but the model's config.json has "
            f"{real}, which the engine uses: correct it, or leave it out",
            ARCHITECTURE_PATH,
        )
    elif context.family is None and spec.workload.images.width is not None:
        yield info(
            FindingReason.FAMILY_UNKNOWN,
            f"{context.model.architecture} belongs to no known family, so its images cannot be counted and the engine's "
            "defaults are used; if you know better values, set them in spec.engine.settings",
            ARCHITECTURE_PATH,
        )
    elif context.family is not None and context.family.images is None and spec.workload.images.width is not None:
        why = context.family.uncounted or "its family says nothing about them"
        yield info(
            FindingReason.IMAGES_NOT_COUNTED,
            f"images of {context.model.architecture} cannot be counted ({why}), so KV cache, /dev/shm and host memory are "
            "planned without them; leave room, or set spec.sharedMemorySize and engine.settings yourself",
            "spec.workload.images",
        )


def size(plan: CheckInput) -> Iterator[Finding]:
    """A number of parameters that differs from the model's own."""
    model = plan.context.spec.model
    known, declared = known_parameters(model, plan.model_files), (model.parameters_billion or 0) * 1e9
    if declared and known is not None and abs(declared - known) > max(ROUNDED * known, 0.5e9):
        yield warning(
            FindingReason.PARAMETERS_DIFFER,
            f"spec.model.parametersBillion is {model.parameters_billion}, which the plan uses, but the model has "
            f"{known / 1e9:.2f} billion parameters: correct it, or leave it out",
            "spec.model.parametersBillion",
        )


def takes_images(plan: CheckInput) -> Iterator[Finding]:
    """A model without vision, or one whose vision stays off: its pods would never be ready.

    SGLang refuses images then from 0.5.17 on, and silently drops them before.
    """
    context = plan.context
    model, architecture = context.model, context.model.architecture
    if architecture is None:
        return
    if architecture in context.engine.vision_off:
        if not plan.declared.value(MULTIMODAL):
            yield warning(
                FindingReason.NOT_MULTIMODAL,
                f"{context.engine_name()} turns the vision of {architecture} off unless {MULTIMODAL} is true, and then "
                f"accepts no images, so the pods would never be ready; set engine.settings.{MULTIMODAL}: true",
                "spec.engine.settings",
            )
    elif not (takes_media(architecture) or model.vision_heads or model.vision_hidden_size or model.patch_size):
        yield warning(
            FindingReason.NOT_MULTIMODAL,
            f"{architecture} is not known as a vision-language model: if it accepts no images, the pods will never be ready; "
            "choose another model",
            ARCHITECTURE_PATH if context.spec.model.architecture else "spec.model.uri",
        )
