"""A plan says so where images cannot be counted, and why."""

import pytest
from unit.plan.builders import images, plan, service

from vlm_api.reasons import FindingReason

REASONS = (FindingReason.FAMILY_UNKNOWN, FindingReason.IMAGES_NOT_COUNTED)


@pytest.mark.parametrize(
    ("architecture", "reason", "says"),
    [
        ("OursForConditionalGeneration", FindingReason.FAMILY_UNKNOWN, "belongs to no known family"),
        ("NVILAForConditionalGeneration", FindingReason.IMAGES_NOT_COUNTED, "the checkpoint's own code"),
        ("InternVLChatModel", None, ""),
        ("Qwen3VLForConditionalGeneration", None, ""),
    ],
)
def test_what_cannot_be_counted_is_said(architecture: str, reason: FindingReason | None, says: str) -> None:
    model = {"uri": "pvc://models/ours", "architecture": architecture, "parametersBillion": 8}
    made = plan(service(model=model, workload=images(width=512, height=512)))
    found = {f.reason: f.message for f in made.findings if f.reason in REASONS}
    assert list(found) == ([reason] if reason else [])
    assert says in found.get(reason, "")
    assert (made.memory.image_tokens is None) == (reason is not None)


def test_a_model_of_another_algorithm_is_planned_with_its_images() -> None:
    model = {"uri": "pvc://models/ours", "architecture": "DeepseekOCRForCausalLM", "parametersBillion": 3}
    memory = plan(service(model=model, workload=images(width=1280, height=720))).memory
    assert (memory.image_tokens, memory.image_prompt_tokens) == (483, 483)
    assert (memory.image_bytes, memory.image_extra_bytes) == (12_582_912, 9_830_400)
