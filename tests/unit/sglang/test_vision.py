"""A model whose vision the engine turns off by itself is told to look, and one that has none is told of."""

import pytest
from unit.plan.builders import plan, reasons, service, values

from vlm_api.plan import ServingPlan
from vlm_operator.sglang.catalogue.releases import newest


def planned(architecture: str, version: str = newest(), **engine: object) -> ServingPlan:
    model = {"uri": "hf://someone/model", "architecture": architecture, "parametersBillion": 12}
    return plan(service(model=model, engine={"version": version, **engine}))


@pytest.mark.parametrize(
    "architecture",
    [
        "Gemma3ForConditionalGeneration",
        "Llama4ForConditionalGeneration",
        "Step3VLForConditionalGeneration",
        "InklingForConditionalGeneration",
    ],
)
def test_vision_that_the_engine_turns_off_by_itself_is_turned_on(architecture: str) -> None:
    made = planned(architecture)
    assert values(made)["enable_multimodal"] is True
    assert "--enable-multimodal" in made.engine.args
    assert "NotMultimodal" not in reasons(made)


def test_a_model_from_the_table_is_known_by_its_uri() -> None:
    assert "--enable-multimodal" in plan(service(model={"uri": "hf://google/gemma-3-12b-it"})).engine.args


@pytest.mark.parametrize("version", ["0.5.9", "0.5.16"])
def test_it_is_passed_to_the_versions_that_turn_it_off(version: str) -> None:
    assert "--enable-multimodal" in planned("Gemma3ForConditionalGeneration", version).engine.args
    inkling = "--enable-multimodal" in planned("InklingForConditionalGeneration", version).engine.args
    assert inkling is (version == "0.5.16")


def test_a_version_that_nobody_knows_is_told_as_the_newest() -> None:
    service_of = service(
        model={"uri": "hf://google/gemma-3-12b-it"}, engine={"image": "registry.example.com/sglang:nightly"}
    )
    assert "--enable-multimodal" in plan(service_of).engine.args


def test_models_whose_vision_is_on_anyway_are_left_to_the_engine() -> None:
    assert plan().setting("enable_multimodal") is None
    assert "NotMultimodal" not in reasons(plan())


def test_without_tuning_a_finding_tells_what_to_set() -> None:
    made = planned("Gemma3ForConditionalGeneration", tuning="Off")
    assert "--enable-multimodal" not in made.engine.args
    (finding,) = [f for f in made.findings if f.reason == "NotMultimodal"]
    assert "set engine.settings.enable_multimodal: true" in finding.message


def test_what_the_user_says_is_the_users() -> None:
    made = planned("Gemma3ForConditionalGeneration", settings={"enable_multimodal": True}, tuning="Off")
    setting = made.setting("enable_multimodal")
    assert setting.source.value == "user"
    assert "NotMultimodal" not in reasons(made)


def test_a_text_model_is_told_before_its_pods_fail() -> None:
    (finding,) = [f for f in planned("Qwen3ForCausalLM").findings if f.reason == "NotMultimodal"]
    assert finding.severity.value == "Warning"
    assert "Qwen3ForCausalLM is not known as a vision-language model" in finding.message


@pytest.mark.parametrize("architecture", ["MiniCPMV", "DeepseekVL2ForCausalLM", "Gemma4ForConditionalGeneration"])
def test_a_model_that_takes_images_is_none_of_them(architecture: str) -> None:
    assert "NotMultimodal" not in reasons(planned(architecture))
