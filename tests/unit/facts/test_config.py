"""The facts in a model's config.json. The files are excerpts of published ones."""

import copy
from typing import Any

import pytest

from vlm_api.spec import ModelSpec
from vlm_operator.facts.model.config import facts_of_config
from vlm_operator.facts.model.inspected import from_api, to_api
from vlm_operator.facts.model.lookup import model_facts, worth_reading
from vlm_operator.facts.types import ModelFacts
from vlm_operator.sglang import memory

# Qwen/Qwen2.5-VL-7B-Instruct: the language model's fields are at the top level, without head_dim.
QWEN2_5_VL_7B: dict[str, Any] = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 128000,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "torch_dtype": "bfloat16",
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "num_heads": 16,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "model_type": "qwen2_5_vl",
    },
    "vocab_size": 152064,
}
# The same model as newer releases of Transformers write it.
NESTED_QWEN2_5_VL_7B: dict[str, Any] = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "dtype": "bfloat16",
    "text_config": {
        **{k: v for k, v in QWEN2_5_VL_7B.items() if k.startswith(("hidden", "intermediate", "max", "num"))},
        "model_type": "qwen2_5_vl_text",
        "layer_types": ["full_attention"] * 28,
    },
    "vision_config": QWEN2_5_VL_7B["vision_config"],
}
QWEN3_VL_8B: dict[str, Any] = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "text_config": {
        "dtype": "bfloat16",
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_position_embeddings": 262144,
        "model_type": "qwen3_vl_text",
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
    },
    "tie_word_embeddings": False,
    "vision_config": {
        "deepstack_visual_indexes": [8, 16, 24],
        "depth": 27,
        "hidden_size": 1152,
        "model_type": "qwen3_vl",
        "num_heads": 16,
        "out_hidden_size": 4096,
        "patch_size": 16,
    },
}
QWEN3_VL_30B_A3B: dict[str, Any] = {
    "architectures": ["Qwen3VLMoeForConditionalGeneration"],
    "model_type": "qwen3_vl_moe",
    "text_config": {
        "dtype": "bfloat16",
        "head_dim": 128,
        "hidden_size": 2048,
        "max_position_embeddings": 262144,
        "model_type": "qwen3_vl_moe_text",
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
    },
    "vision_config": {"deepstack_visual_indexes": [8, 16, 24], "hidden_size": 1152, "num_heads": 16, "patch_size": 16},
}
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}

# id in the operator's table -> (config.json, metadata.total_size of the index)
KNOWN = {
    "Qwen/Qwen2.5-VL-7B-Instruct": (QWEN2_5_VL_7B, 16_584_333_312),
    "Qwen/Qwen3-VL-8B-Instruct": (QWEN3_VL_8B, 17_534_247_392),
    "Qwen/Qwen3-VL-30B-A3B-Instruct": (QWEN3_VL_30B_A3B, 62_141_508_064),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_model_s_file_and_the_table_agree(name: str):
    config, total_bytes = KNOWN[name]
    read, table = facts_of_config(config, total_bytes), model_facts(ModelSpec(uri=f"hf://{name}"))
    assert {k: v for k, v in vars(read).items() if k != "evidence"} == {
        k: v for k, v in vars(table).items() if k != "evidence"
    }


def test_the_old_and_the_new_layout_give_the_same_facts():
    assert facts_of_config(QWEN2_5_VL_7B, 16_584_333_312) == facts_of_config(NESTED_QWEN2_5_VL_7B, 16_584_333_312)


@pytest.mark.parametrize(
    ("language", "tokens"),
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"max_position_embeddings": 32768, "max_sequence_length": 4096}, 4096),
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 32768),
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "linear", "factor": 4.0}}, 131072),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 32768, "rope_scaling": {"factor": "4"}}, None),
        ({"max_position_embeddings": -1}, None),
        ({"max_position_embeddings": True}, None),
        ({}, None),
    ],
)
def test_the_context_is_what_the_engine_derives(language: dict[str, Any], tokens: int | None):
    assert facts_of_config({"text_config": {"hidden_size": 1, **language}}, None).context_length == tokens


def test_parameters_are_unknown_without_the_size_of_the_weights():
    assert facts_of_config(QWEN3_VL_8B, None).parameters is None
    assert facts_of_config(QWEN3_VL_8B, None).layers == 36


@pytest.mark.parametrize(
    ("quantised", "bits"),
    [
        (FP8, 8),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, 4),
        ({"quantization_config": {"quant_method": "gptq", "bits": 8}}, 8),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4}}},
                }
            },
            4,
        ),
        ({"quantization_config": {"quant_method": "something-new"}}, 16),
    ],
    ids=["fp8", "awq", "gptq", "compressed tensors", "an unknown method"],
)
def test_the_weights_of_a_quantised_model_have_the_size_of_its_files(quantised: dict[str, Any], bits: int):
    facts = facts_of_config({**QWEN3_VL_8B, **quantised}, 10_591_000_064)
    assert facts.bytes_per_parameter * 8 == bits
    assert memory.weights_mib(facts, 1) == 10_101


def test_float32_files_are_served_at_half_their_size():
    config = copy.deepcopy(QWEN3_VL_8B)
    config["text_config"]["dtype"] = "float32"
    facts = facts_of_config(config, 4 * 8_000_000)
    assert (facts.parameters, facts.bytes_per_parameter) == (8_000_000, 2.0)


def test_parameters_are_unknown_if_the_file_does_not_name_the_dtype():
    config = copy.deepcopy(QWEN3_VL_8B)
    del config["text_config"]["dtype"]
    assert facts_of_config(config, 17_534_247_392).parameters is None


# Content of a file -> the facts that must not be guessed from it.
UNCERTAIN: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    # google/gemma-3-12b-it: head_dim defaults to 256, which is not in the file.
    "a head size that the model class sets by default": (
        {"text_config": {"model_type": "gemma3_text", "hidden_size": 3840, "num_attention_heads": 16}},
        ("head_size", "kv_heads"),
    ),
    "latent attention": (
        {"text_config": {"kv_lora_rank": 512, "num_key_value_heads": 128, "head_dim": 64}},
        ("kv_heads", "head_size", "latent_size"),
    ),
    "only some layers have a KV cache": (
        {"text_config": {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2}},
        ("layers", "kv_layers", "state_values"),
    ),
    "a nested section without sizes": (
        {"text_config": {"model_type": "llama"}, "num_hidden_layers": 5},
        ("layers", "head_size"),
    ),
    "a field with another meaning in Qwen2-VL": (
        {"model_type": "qwen2_vl", "vision_config": {"hidden_size": 3584, "embed_dim": 1280}},
        ("vision_hidden_size",),
    ),
}


@pytest.mark.parametrize(("config", "unknown"), UNCERTAIN.values(), ids=UNCERTAIN.keys())
def test_uncertain_facts_stay_unknown(config: dict[str, Any], unknown: tuple[str, ...]):
    facts = facts_of_config(config, None)
    assert [getattr(facts, name) for name in unknown] == [None] * len(unknown)


JUNK: tuple[Any, ...] = (None, True, -1, 0, 10**30, 1.5, float("nan"), "36", "", [], [None], {}, {"a": 1}, "x" * 5000)


@pytest.mark.parametrize("junk", JUNK, ids=[repr(j)[:12] for j in JUNK])
def test_an_invalid_value_in_any_field_counts_as_missing(junk: Any):
    for name in (*QWEN2_5_VL_7B, *QWEN3_VL_8B, *FP8):
        facts_of_config({**QWEN2_5_VL_7B, **FP8, name: junk}, 17_534_247_392)
    for part in ("text_config", "vision_config"):
        for name in QWEN3_VL_8B[part]:
            config = copy.deepcopy(QWEN3_VL_8B)
            config[part][name] = junk
            facts = facts_of_config(config, 17_534_247_392)
            # The facts must be valid in the API, else they cannot be stored.
            assert from_api(to_api(facts), "hf://a/b").layers in (36, None)


def test_facts_survive_the_round_trip_through_the_api():
    facts = facts_of_config(QWEN3_VL_30B_A3B, 62_141_508_064)
    arrived = from_api(to_api(facts), "hf://Qwen/x")
    assert arrived == ModelFacts(**{**vars(facts), "evidence": "config.json of hf://Qwen/x, read in the cluster"})


class TestPrecedence:
    READ = facts_of_config(QWEN3_VL_8B, 17_534_247_392)

    def test_the_spec_overrides_the_files(self):
        spec = ModelSpec(uri="pvc://m/x", architecture="Qwen2_5_VLForConditionalGeneration", parameters_billion=9)
        facts = model_facts(spec, self.READ)
        assert (facts.architecture, facts.parameters) == ("Qwen2_5_VLForConditionalGeneration", 9e9)
        assert facts.layers == 36

    def test_the_files_fill_in_facts_missing_from_the_table(self):
        facts = model_facts(ModelSpec(uri="hf://Qwen/Qwen2-VL-7B-Instruct"), self.READ)
        assert (facts.architecture, facts.layers) == ("Qwen2VLForConditionalGeneration", 28)
        assert facts.parameters == self.READ.parameters

    def test_a_quantised_checkpoint_keeps_its_size_with_any_number_of_parameters(self):
        read = facts_of_config({**QWEN3_VL_8B, **FP8}, 10_591_000_064)
        model = model_facts(ModelSpec(uri="pvc://m/x", parameters_billion=8), read)
        assert model.parameters == 8e9
        assert model.parameters * model.bytes_per_parameter == pytest.approx(10_591_000_064)

    def test_the_bits_of_a_quantised_weight_are_used_if_the_files_state_no_size(self):
        read = facts_of_config({**QWEN3_VL_8B, **FP8}, None)
        model = model_facts(ModelSpec(uri="pvc://m/x", architecture="A", parameters_billion=8), read)
        assert (model.parameters, model.bytes_per_parameter) == (8e9, 1.0)


@pytest.mark.parametrize(
    ("spec", "worth"),
    [
        ({"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}, False),
        ({"uri": "hf://Qwen/Qwen3-VL-8B-Instruct", "architecture": "Other"}, True),
        ({"uri": "hf://somebody/else"}, True),
        ({"uri": "pvc://models/x", "architecture": "Qwen3VLForConditionalGeneration"}, True),
        ({"uri": "pvc://models/x", "architecture": "A", "parametersBillion": 8}, False),
        ({"uri": "pvc://models/x-AWQ", "architecture": "A", "parametersBillion": 33}, True),
        ({"uri": "hf://o/x-FP8-dynamic", "architecture": "A", "parametersBillion": 33}, True),
        ({"uri": "hf://o/x_w4a16", "architecture": "A", "parametersBillion": 33}, True),
        ({"uri": "hf://hawqs/sawfish-8B", "architecture": "A", "parametersBillion": 33}, False),
        (
            {
                "uri": "hf://Qwen/Qwen3-VL-8B-Instruct-FP8",
                "architecture": "Qwen3VLForConditionalGeneration",
                "parametersBillion": 8,
            },
            False,
        ),
        ({"uri": "oci://registry/x"}, False),
        ({"uri": "file:///models/x"}, False),
    ],
)
def test_files_are_read_if_they_are_readable_and_would_add_facts(spec: dict[str, Any], worth: bool):
    assert worth_reading(ModelSpec.model_validate(spec)) is worth


def test_files_are_read_if_quantization_is_set():
    spec = ModelSpec(uri="pvc://models/x", architecture="A", parameters_billion=33)
    assert worth_reading(spec, quantization=True)


def test_only_square_blocks_are_accepted():
    assert facts_of_config(QWEN3_VL_8B | FP8, None).quantised_block == 128
    for odd in ([128], [128, 64], "128", None, [True, True], [0, 0]):
        config = QWEN3_VL_8B | {"quantization_config": {"quant_method": "fp8", "weight_block_size": odd}}
        assert facts_of_config(config, None).quantised_block is None, odd


@pytest.mark.parametrize(
    ("quantised", "group"),
    [
        ({"quant_method": "awq", "group_size": 128}, 128),
        ({"quant_method": "awq", "q_group_size": 64}, 64),
        ({"quant_method": "gptq", "group_size": -1}, None),
        ({"quant_method": "gptq", "group_size": 128, "dynamic": {"-:.*down_proj": {}}}, None),
        ({"quant_method": "awq", "group_size": 128, "modules_to_not_convert": ["model.layers.0.mlp"]}, None),
        ({"quant_method": "awq", "group_size": 128, "modules_to_not_convert": ["visual.blocks.0.mlp", "mlp1"]}, 128),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"group_size": 128}}, "b": {"weights": {}}},
            },
            128,
        ),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"group_size": None}}}}, None),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 1}}, None),
    ],
)
def test_groups_of_weights_that_share_a_scale_are_read(quantised: dict[str, Any], group: int | None):
    assert facts_of_config(QWEN3_VL_8B | {"quantization_config": quantised}, None).quantised_group == group


def test_experts_are_read_under_every_name_and_exclude_the_dense_width():
    for name in ("num_experts", "n_routed_experts", "num_local_experts"):
        text = {"num_hidden_layers": 4, "intermediate_size": 6144, "moe_intermediate_size": 768, name: 64}
        facts = facts_of_config({"text_config": text}, None)
        assert (facts.experts, facts.expert_size, facts.feed_forward_size) == (64, 768, None)
