"""Facts about a model without reading its files."""

import pytest

from vlm_api.spec import ModelSpec
from vlm_operator.facts.model.lookup import model_facts
from vlm_operator.facts.types import ModelFacts


def facts(uri, **more):
    return model_facts(ModelSpec.model_validate({"uri": uri} | more))


def test_a_well_known_id_has_facts_and_their_source():
    model = facts("hf://Qwen/Qwen3-VL-8B-Instruct")
    assert model.architecture == "Qwen3VLForConditionalGeneration"
    assert (model.parameters, model.bytes_per_parameter) == (8_767_123_696, 2.0)
    assert (model.layers, model.kv_heads, model.head_size) == (36, 8, 128)
    assert (model.vision_hidden_size, model.patch_size) == (1152, 16)
    assert "Qwen/Qwen3-VL-8B-Instruct" in model.evidence


def test_ids_match_in_any_case_as_on_the_hub():
    assert facts("hf://qwen/qwen3-vl-30b-a3b-thinking").architecture == "Qwen3VLMoeForConditionalGeneration"


def test_an_fp8_checkpoint_is_slightly_more_than_half_the_size():
    whole, small = facts("hf://Qwen/Qwen3-VL-8B-Instruct"), facts("hf://Qwen/Qwen3-VL-8B-Instruct-FP8")
    assert small.parameters == whole.parameters
    assert 1.0 < small.bytes_per_parameter < 1.4


def test_the_spec_s_parameters_override_only_the_table_s_parameters():
    model = facts("hf://Qwen/Qwen3-VL-8B-Instruct", parametersBillion=9)
    assert (model.parameters, model.layers) == (9e9, 36)


def test_a_different_architecture_discards_the_table_s_facts():
    model = facts("hf://Qwen/Qwen3-VL-8B-Instruct", architecture="Qwen2_5_VLForConditionalGeneration")
    assert model == ModelFacts(architecture="Qwen2_5_VLForConditionalGeneration")


@pytest.mark.parametrize("uri", ["hf://somebody/else", "pvc://models/qwen3-vl", "file:///Qwen/Qwen3-VL-8B-Instruct"])
def test_nothing_is_guessed_from_an_unknown_name(uri):
    assert facts(uri) == ModelFacts()
