"""Whether the engine looks at images at all: it turns the vision of some models off by itself.

Images are then refused from SGLang 0.5.17 on, and before dropped without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Finding, Setting, Severity, Source
from vlm_operator.engines.multimodal import off_by_itself, takes_media
from vlm_operator.resolve.context import Context, Declared, applied

NAME = "enable_multimodal"
EVIDENCE = "SGLang 0.5.9 to 0.5.23, configs/model_config.py: mm_disabled_models"


def vision_on(context: Context, declared: Declared) -> Iterator[Setting]:
    """``enable_multimodal`` for models whose vision the engine would turn off."""
    architecture = context.model.architecture
    if NAME in declared or not context.knows(NAME) or not off_by_itself(architecture, context.engine.version):
        return
    reason = f"the engine turns the vision of {architecture} off by itself, and then takes no images"
    yield applied(NAME, True, Source.WORKLOAD, "workload.vision_on", reason, EVIDENCE)


def vision_findings(context: Context, declared: Declared) -> list[Finding]:
    """A model that takes no images, or one whose vision stays off: its pods would never be ready."""
    model, architecture = context.model, context.model.architecture
    if architecture is None:
        return []
    if off_by_itself(architecture, context.engine.version):
        if declared.value(NAME):
            return []
        message = (
            f"{context.engine_name()} turns the vision of {architecture} off unless {NAME} is true, and then takes no images: "
            f"the pods would never be ready; set engine.settings.{NAME}: true"
        )
        path = "spec.engine.settings"
    elif takes_media(architecture) or model.vision_heads or model.vision_hidden_size or model.patch_size:
        return []
    else:
        message = (
            f"{architecture} is no vision-language model, as far as is known: if it takes no images, the pods "
            "will never be ready; name another model"
        )
        path = "spec.model.architecture" if context.spec.model.architecture else "spec.model.uri"
    return [Finding(severity=Severity.WARNING, reason="NotMultimodal", message=message, path=path)]
