"""How large a model is: what is said, what is known, and quantised checkpoints."""

import pytest
from unit.plan.builders import node, plan, reasons, service

L40S = node("l40s", "NVIDIA-L40S", 46_068, "8.9")
AWQ = {"uri": "pvc://models/x", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 33}
LIGHT = {"concurrency": 8, "images": {"perRequest": 1, "width": 512, "height": 512}}


@pytest.mark.parametrize("method", ["awq", "awq_marlin", "gptq_marlin", "moe_wna16"])
def test_a_method_that_only_4_bit_checkpoints_have_does_not_count_as_bf16(method: str) -> None:
    engine = {"settings": {"quantization": method}}
    made = plan(service(model=AWQ, workload=LIGHT, engine=engine), L40S)
    assert "ModelDoesNotFit" not in reasons(made)
    assert made.memory.weights_mib is not None
    assert 33e9 * 0.5 / 2**20 < made.memory.weights_mib < 33e9 / 2**20
    assert "ModelDoesNotFit" in reasons(plan(service(model=AWQ, workload=LIGHT), L40S))


@pytest.mark.parametrize(("billions", "told"), [(80, True), (1, True), (8, False), (9, False)])
def test_a_number_of_parameters_that_is_not_the_model_s_is_told_and_one_that_its_name_rounds_is_not(
    billions: int, told: bool
) -> None:
    model = {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct", "parametersBillion": billions}
    found = [f for f in plan(service(model=model)).findings if f.reason == "ParametersDiffer"]
    assert bool(found) is told
    if told:
        assert f"is {billions}, which the plan uses, but the model has 8.77 billion" in found[0].message


def test_of_a_model_that_nobody_knows_any_number_is_believed() -> None:
    assert "ParametersDiffer" not in reasons(plan(service(model=AWQ)))
