"""A model's ``config.json`` -> what plans need to know of it. The file is untrusted: what is odd counts as not said."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_operator.facts.types import ModelFacts

# Where the language model's part is. Transformers nests it since 4.52; InternVL and DeepSeek-VL have names of their own.
# Older files of Qwen2.5-VL have everything at the top.
_LANGUAGE_PARTS: Final = ("text_config", "llm_config", "language_config")

# Models whose heads share the hidden size out, where the file does not give head_dim. Others have a default of their own
# that is not in the file (Gemma 3: 256).
_HEADS_SHARE_HIDDEN_SIZE: Final = frozenset(
    {"llama", "mistral", "qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"}
)
# vision_config.hidden_size of Qwen2-VL is the language model's.
_OTHER_VISION_SIZE: Final = frozenset({"qwen2_vl"})

_STORED_BYTES: Final = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}
# The engine loads every unquantised model in two bytes: float32 becomes float16 (SGLang, configs/model_config.py).
_SERVED_BYTES: Final = 2.0
_ATTENDING: Final = frozenset({"full_attention", "sliding_attention", "chunked_attention"})

# Names of the same thing in the families' files.
_EXPERTS: Final = ("num_experts", "n_routed_experts", "num_local_experts")
_VISION_HEADS: Final = ("num_heads", "num_attention_heads")

_MOST: Final = 1_000_000
_MOST_BYTES: Final = 10**14


def facts_of_config(config: Mapping[str, Any], total_bytes: int | None) -> ModelFacts:
    """The facts in a parsed ``config.json``; None for each that it does not say for certain.

    ``total_bytes``: bytes of all weights, by the safetensors index or header; without it the parameters stay unknown.
    """
    language = next((part for name in _LANGUAGE_PARTS if (part := _map(config, name))), config)
    vision = _map(config, "vision_config")
    parameters, bytes_each = _weights(config, language, total_bytes)
    return ModelFacts(
        architecture=_architecture(config),
        parameters=parameters,
        bytes_per_parameter=bytes_each,
        layers=_count(language, "num_hidden_layers") if _all_attend(language) else None,
        attention_heads=_count(language, "num_attention_heads"),
        kv_heads=None if _latent(language) else _count(language, "num_key_value_heads"),
        head_size=None if _latent(language) else _head_size(language),
        feed_forward_size=_feed_forward_size(language),
        experts=_first_count(language, _EXPERTS),
        expert_size=_count(language, "moe_intermediate_size"),
        quantised_block=_quantised_block(config, language),
        vision_hidden_size=_count(vision, "hidden_size")
        if _text(config, "model_type") not in _OTHER_VISION_SIZE
        else None,
        vision_heads=_first_count(vision, _VISION_HEADS),
        embedding_values_per_token=_embedding_values(language, vision),
        patch_size=_count(vision, "patch_size"),
    )


def _map(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}


def _count(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST else None


def _first_count(config: Mapping[str, Any], names: Sequence[str]) -> int | None:
    return next((found for name in names if (found := _count(config, name)) is not None), None)


def _text(config: Mapping[str, Any], name: str) -> str:
    found = config.get(name)
    return found if isinstance(found, str) else ""


def _architecture(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    return first if isinstance(first, str) and re.fullmatch(r"[A-Za-z0-9_]{1,128}", first) else None


def _head_size(language: Mapping[str, Any]) -> int | None:
    if "head_dim" in language:
        return _count(language, "head_dim")
    hidden, heads = _count(language, "hidden_size"), _count(language, "num_attention_heads")
    known = _text(language, "model_type") in _HEADS_SHARE_HIDDEN_SIZE
    return hidden // heads if known and hidden and heads and hidden % heads == 0 else None


def _embedding_values(language: Mapping[str, Any], vision: Mapping[str, Any]) -> int | None:
    """The vision encoder's output is as wide as the language model, once more for each layer that takes deepstack's."""
    hidden, deepstack = _count(language, "hidden_size"), vision.get("deepstack_visual_indexes")
    levels = 1 + (len(deepstack) if isinstance(deepstack, list) else 0)
    return hidden * levels if vision and hidden and hidden * levels <= _MOST else None


def _feed_forward_size(language: Mapping[str, Any]) -> int | None:
    """Mixtures of experts often name a width that no layer has; which layers are dense is told in other fields."""
    return None if _first_count(language, _EXPERTS) else _count(language, "intermediate_size")


def _quantised_block(config: Mapping[str, Any], language: Mapping[str, Any]) -> int | None:
    """Both sides of a block, where they are the same. ``[128, 128]`` in every fp8 checkpoint of DeepSeek and Qwen."""
    quantised = _map(config, "quantization_config") or _map(language, "quantization_config")
    sides = quantised.get("weight_block_size")
    if not isinstance(sides, list) or len(sides) != 2 or sides[0] != sides[1]:
        return None
    return _count({"side": sides[0]}, "side")


def _latent(language: Mapping[str, Any]) -> bool:
    """Whether keys and values are kept compressed (DeepSeek's latent attention), which is no matter of heads."""
    return "kv_lora_rank" in language


def _all_attend(language: Mapping[str, Any]) -> bool:
    """Whether every layer keeps keys and values; in hybrid models only some do."""
    kinds = language.get("layer_types")
    return not isinstance(kinds, list) or all(isinstance(k, str) and k in _ATTENDING for k in kinds)


def _weights(
    config: Mapping[str, Any], language: Mapping[str, Any], total_bytes: int | None
) -> tuple[float | None, float]:
    """Number of parameters, and bytes of each in the engine. Their product is the size of the weights.

    A quantised checkpoint keeps some layers in bf16: its bytes are exact, and the number is what they make of it.
    """
    quantised = _map(config, "quantization_config") or _map(language, "quantization_config")
    size = total_bytes if total_bytes is not None and 0 < total_bytes <= _MOST_BYTES else None
    if quantised:
        each = _quantised_bits(quantised) / 8
        return (None if size is None else size / each), each
    named = next((t for c in (config, language) for n in ("dtype", "torch_dtype") if (t := _text(c, n))), "")
    stored = _STORED_BYTES.get(named.removeprefix("torch."))
    return (None if size is None or stored is None else float(size // stored)), _SERVED_BYTES


def _quantised_bits(quantised: Mapping[str, Any]) -> int:
    """Bits of a quantised weight. 16 where the method does not say: the product with the number stays right."""
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "").lower()
    if "fp8" in method or quantised.get("load_in_8bit") is True:
        return 8
    if method == "awq" or "fp4" in method or quantised.get("load_in_4bit") is True:
        return 4
    groups = _map(quantised, "config_groups").values()
    weights = next((_map(g, "weights") for g in groups if isinstance(g, Mapping)), {})
    said = [quantised.get("bits"), quantised.get("w_bit"), weights.get("num_bits")]
    return next((b for b in said if isinstance(b, int) and not isinstance(b, bool) and b in (2, 3, 4, 8)), 16)
