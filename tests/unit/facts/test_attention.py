"""KV bytes of a token and bytes of a state, against SGLang 0.5.23's own configurator on a described GPU."""

from typing import Any

import pytest

from vlm_operator.facts.model.config import facts_of_config
from vlm_operator.sglang.memory import kv_bytes_per_token, state_bytes

GDN = {
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
QWEN3_5_9B: dict[str, Any] = {
    **GDN,
    "num_hidden_layers": 32,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
}
LFM2: dict[str, Any] = {
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "conv_L_cache": 3,
    "layer_types": ["conv"] * 10 + ["full_attention"] * 6,
}
NEMOTRON_H: dict[str, Any] = {
    "num_hidden_layers": 52,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
}
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_key_value_heads": 16}


@pytest.mark.parametrize(
    ("language", "kv", "state"),
    [
        pytest.param({**LATENT, "num_hidden_layers": 27}, 31104, 0, id="Kimi-VL"),
        pytest.param({**LATENT, "num_hidden_layers": 61}, 70272, 0, id="Kimi-K2.5"),
        pytest.param({**LATENT, "num_hidden_layers": 30}, 34560, 0, id="DeepSeek-VL2"),
        pytest.param(
            {
                "kv_lora_rank": None,
                "use_mla": False,
                "num_hidden_layers": 12,
                "num_key_value_heads": 10,
                "head_dim": 128,
            },
            61440,
            0,
            id="DeepSeek-OCR",
        ),
        pytest.param({"num_hidden_layers": 34, "num_key_value_heads": 4, "head_dim": 256}, 139264, 0, id="Gemma 3 4B"),
        pytest.param(QWEN3_5_9B, 32768, 51511296, id="Qwen3.5-9B"),
        pytest.param(
            {**QWEN3_5_9B, "num_hidden_layers": 40, "num_key_value_heads": 2}, 20480, 64389120, id="Qwen3.6-35B-A3B"
        ),
        pytest.param(NEMOTRON_H, 6144, 49082368, id="Nemotron 30B"),
        pytest.param({**LFM2}, 12288, 81920, id="LFM2-VL 1.6B"),
    ],
)
def test_the_engine_s_own_numbers(language: dict[str, Any], kv: int, state: int):
    facts = facts_of_config({"text_config": language}, None)
    assert kv_bytes_per_token(facts, 1, 1) == kv
    assert state_bytes(facts, 1, 1) == state


def test_a_latent_cache_is_whole_on_each_rank_and_a_state_is_split():
    latent = facts_of_config({"text_config": {**LATENT, "num_hidden_layers": 61}}, None)
    assert kv_bytes_per_token(latent, 8, 1) == 70272
    assert kv_bytes_per_token(latent, 8, 1, 1) == 35136
    hybrid = facts_of_config({"text_config": QWEN3_5_9B}, None)
    assert state_bytes(hybrid, 4, 1) == 51511296 // 4


def test_the_type_of_a_state_is_the_file_s_then_the_user_s():
    half = facts_of_config({"text_config": {**QWEN3_5_9B, "mamba_ssm_dtype": "bfloat16"}}, None)
    whole = facts_of_config({"text_config": QWEN3_5_9B}, None)
    assert state_bytes(half, 1, 1) == state_bytes(whole, 1, 1, 2) < state_bytes(whole, 1, 1)


def test_a_pattern_of_layers_without_the_sizes_of_their_states_is_unknown():
    # And not the KV cache of all 52 layers, which was eight times too much.
    facts = facts_of_config({"text_config": NEMOTRON_H | {"ssm_state_size": None}}, None)
    assert kv_bytes_per_token(facts, 1, 1) is None


def test_sliding_layers_in_a_pool_of_their_own_take_a_part():
    # The engine's cell for 12 whole and 36 sliding layers of 4,096 bytes is 167,116.8 bytes.
    text = {"num_hidden_layers": 48, "num_key_value_heads": 8, "head_dim": 128}
    facts = facts_of_config({"architectures": ["Llama4ForConditionalGeneration"], "text_config": text}, None)
    assert kv_bytes_per_token(facts, 1, 1) == 167116
    assert kv_bytes_per_token(facts, 1, 1, sliding=1) == 196608
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"] * 12
    step = {"architectures": ["Step3p7ForConditionalGeneration"], "text_config": text | {"layer_types": kinds}}
    assert kv_bytes_per_token(facts_of_config(step, None), 1, 1) == 167116
    whole = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text | {"layer_types": kinds}}
    assert kv_bytes_per_token(facts_of_config(whole, None), 1, 1) == 196608
