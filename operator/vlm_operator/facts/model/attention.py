"""What a language model keeps for each token and for each running request, by its section of ``config.json``.

As SGLang 0.5.23 derives it: ``mem_cache/pool_configurator.py`` for the KV cache, ``configs/mamba_utils.py`` with
``configs/qwen3_next.py``, ``configs/lfm2.py`` and ``configs/nemotron_h.py`` for the states of layers without one.
"""

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from vlm_operator.facts.model.fields import count, text

_ATTENDING: Final = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
_LINEAR, _CONVOLUTION = "linear_attention", "conv"
_STATE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


class AttentionFacts(TypedDict, total=False):
    """Fields of ModelFacts."""

    layers: int | None
    kv_layers: int | None
    sliding_layers: int | None
    latent: bool
    latent_size: int | None
    kv_heads: int | None
    head_size: int | None
    state_values: int | None
    state_value_bytes: int | None
    convolution_values: int | None


# Architectures whose sliding layers the engine keeps in a pool of their own, all layers having heads of one size
# (configs/model_config.py, is_hybrid_swa_model). Gemma 3 has such layers too, and all of them are kept whole.
_SLIDING_POOL: Final = frozenset({"Step3p7ForConditionalGeneration", "MuseGlimmerForConditionalGeneration"})
_EVERY_FOURTH_WHOLE: Final = "Llama4ForConditionalGeneration"


def attention_facts(language: Mapping[str, Any], architecture: str | None) -> AttentionFacts:
    """Those that the file gives; unknown ones are None or missing."""
    if (latent := count(language, "kv_lora_rank")) is not None and language.get("use_mla") is not False:
        rope = count(language, "qk_rope_head_dim")
        size = None if rope is None else latent + rope
        return {"layers": _attending_layers(language), "latent": True, "latent_size": size}
    if pattern := text(language, "hybrid_override_pattern"):
        return _of_pattern(language, pattern[:_MOST_LAYERS])
    heads: AttentionFacts = {"kv_heads": count(language, "num_key_value_heads"), "head_size": _head_size(language)}
    kinds, layers = _kinds(language), count(language, "num_hidden_layers")
    if architecture == _EVERY_FOURTH_WHOLE and layers is not None:
        return {**heads, "layers": layers, "sliding_layers": layers - layers // 4}
    if kinds is None:
        return {**heads, "layers": layers}
    attending = sum(kind in _ATTENDING for kind in kinds)
    if attending == len(kinds):
        sliding = kinds.count("sliding_attention") if architecture in _SLIDING_POOL else 0
        return {**heads, "layers": layers, "sliding_layers": sliding or None}
    states = _states(language, [kind for kind in kinds if kind not in _ATTENDING])
    return {**heads, **states, "kv_layers": attending or None} if states else heads


def _of_pattern(language: Mapping[str, Any], pattern: str) -> AttentionFacts:
    """Nemotron-H: ``*`` is a layer with attention, ``M`` one with Mamba 2, and all others keep nothing."""
    heads, size = count(language, "mamba_num_heads"), count(language, "mamba_head_dim")
    groups, state, kernel = (count(language, name) for name in ("n_groups", "ssm_state_size", "conv_kernel"))
    if not (heads and size and groups and state and kernel):
        return {}
    layers = pattern.count("M")
    return {
        "kv_heads": count(language, "num_key_value_heads"),
        "head_size": _head_size(language),
        "kv_layers": pattern.count("*") or None,
        "state_values": layers * heads * size * state or None,
        "state_value_bytes": _STATE_BYTES.get(text(language, "mamba_ssm_cache_dtype"), 4),
        "convolution_values": layers * (heads * size + 2 * groups * state) * (kernel - 1) or None,
    }


# Models whose head size is hidden_size / num_attention_heads if head_dim is missing. Others have a default that is not in
# the file (Gemma 3: 256).
_HEADS_SHARE_HIDDEN_SIZE: Final = frozenset(
    {"llama", "mistral", "qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "lfm2"}
)


def _head_size(language: Mapping[str, Any]) -> int | None:
    if "head_dim" in language:
        return count(language, "head_dim")
    hidden, heads = count(language, "hidden_size"), count(language, "num_attention_heads")
    known = text(language, "model_type") in _HEADS_SHARE_HIDDEN_SIZE
    return hidden // heads if known and hidden and heads and hidden % heads == 0 else None


def _attending_layers(language: Mapping[str, Any]) -> int | None:
    kinds = _kinds(language)
    return count(language, "num_hidden_layers") if kinds is None or set(kinds) <= _ATTENDING else None


def _kinds(language: Mapping[str, Any]) -> list[str] | None:
    """The kind of each layer; None if the file does not tell layers apart."""
    listed = language.get("layer_types")
    if isinstance(listed, list):
        return [kind if isinstance(kind, str) else "" for kind in listed[:_MOST_LAYERS]]
    layers, every = count(language, "num_hidden_layers"), count(language, "full_attention_interval")
    if layers is None or every is None or layers > _MOST_LAYERS:
        return None
    return [_LINEAR if number % every else "full_attention" for number in range(1, layers + 1)]


_MOST_LAYERS: Final = 4096


def _states(language: Mapping[str, Any], kinds: list[str]) -> AttentionFacts:
    """States of layers of one kind without a KV cache; nothing for kinds that are not known here."""
    if set(kinds) == {_CONVOLUTION}:
        width, length = count(language, "hidden_size"), count(language, "conv_L_cache")
        return {"convolution_values": len(kinds) * width * (length - 1) or None} if width and length else {}
    names = ("linear_num_value_heads", "linear_value_head_dim", "linear_num_key_heads", "linear_key_head_dim")
    value_heads, value_size, key_heads, key_size = (count(language, name) for name in names)
    kernel = count(language, "linear_conv_kernel_dim")
    if set(kinds) != {_LINEAR} or not (value_heads and value_size and key_heads and key_size and kernel):
        return {}
    convolved = 2 * key_heads * key_size + value_heads * value_size
    return {
        "state_values": len(kinds) * value_heads * value_size * key_size,
        "state_value_bytes": _STATE_BYTES.get(text(language, "mamba_ssm_dtype"), 4),
        "convolution_values": len(kinds) * convolved * (kernel - 1) or None,
    }
