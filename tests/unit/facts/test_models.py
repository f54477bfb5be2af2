"""What is known of a model without reading its files."""

from __future__ import annotations

import pytest

from vlm_api.spec import ModelSpec
from vlm_operator.facts.models import model_facts
from vlm_operator.facts.types import ModelFacts


def facts(uri, **more):
    return model_facts(ModelSpec.model_validate({"uri": uri} | more))


def test_a_well_known_id_is_known_with_its_numbers_and_where_they_come_from():
    model = facts("hf://Qwen/Qwen3-VL-8B-Instruct")
    assert model.architecture == "Qwen3VLForConditionalGeneration"
    assert (model.parameters, model.bytes_per_parameter) == (8_767_123_696, 2.0)
    assert (model.layers, model.kv_heads, model.head_size) == (36, 8, 128)
    assert (model.vision_hidden_size, model.patch_size) == (1152, 16)
    assert "Qwen/Qwen3-VL-8B-Instruct" in model.evidence


def test_ids_are_known_in_any_case_as_the_hub_takes_them():
    assert facts("hf://qwen/qwen3-vl-30b-a3b-thinking").architecture == "Qwen3VLMoeForConditionalGeneration"


def test_an_fp8_checkpoint_is_little_more_than_half_as_large():
    whole, small = facts("hf://Qwen/Qwen3-VL-8B-Instruct"), facts("hf://Qwen/Qwen3-VL-8B-Instruct-FP8")
    assert small.parameters == whole.parameters
    assert 1.0 < small.bytes_per_parameter < 1.4


def test_the_spec_s_parameters_win_and_leave_the_rest_known():
    model = facts("hf://Qwen/Qwen3-VL-8B-Instruct", parametersBillion=9)
    assert (model.parameters, model.layers) == (9e9, 36)


def test_another_architecture_than_the_known_one_sets_the_known_numbers_aside():
    model = facts("hf://Qwen/Qwen3-VL-8B-Instruct", architecture="Qwen2_5_VLForConditionalGeneration")
    assert model == ModelFacts(architecture="Qwen2_5_VLForConditionalGeneration")


@pytest.mark.parametrize("uri", ["hf://somebody/else", "pvc://models/qwen3-vl", "file:///Qwen/Qwen3-VL-8B-Instruct"])
def test_nothing_is_guessed_from_a_name_that_is_not_known(uri):
    assert facts(uri) == ModelFacts()


def test_the_spec_alone_is_enough():
    model = facts("pvc://models/x", architecture="Qwen3VLForConditionalGeneration", parametersBillion=8)
    assert model == ModelFacts(architecture="Qwen3VLForConditionalGeneration", parameters=8e9)
