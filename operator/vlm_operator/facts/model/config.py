"""A model's ``config.json`` -> ModelFacts. The file is untrusted: invalid values count as missing."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_operator.facts.model.attention import attention_facts
from vlm_operator.facts.model.fields import MOST, count, section, text
from vlm_operator.facts.types import ModelFacts

# Keys of the language model's section. Transformers nests it since 4.52; InternVL and DeepSeek-VL use their own names.
# Older Qwen2.5-VL files have all fields at the top level.
_LANGUAGE_PARTS: Final = ("text_config", "llm_config", "language_config")

# In Qwen2-VL, vision_config.hidden_size is the language model's hidden size.
_OTHER_VISION_SIZE: Final = frozenset({"qwen2_vl"})

_STORED_BYTES: Final = {"bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4}
# The engine loads every unquantised model with 2 bytes per parameter: float32 becomes float16 (SGLang, configs/model_config.py).
_SERVED_BYTES: Final = 2.0

# Different model families use different names for the same field.
_EXPERTS: Final = ("num_experts", "n_routed_experts", "num_local_experts")
_VISION_HEADS: Final = ("num_heads", "num_attention_heads")

# The engine takes the first of these that the file has (CONTEXT_LENGTH_KEYS of utils/hf_transformers/common.py).
_CONTEXT: Final = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")

_MOST_CONTEXT: Final = 100_000_000
_MOST_BYTES: Final = 10**14


def facts_of_config(config: Mapping[str, Any], total_bytes: int | None) -> ModelFacts:
    """The facts in a parsed ``config.json``; None for each fact that is missing or uncertain.

    ``total_bytes``: size of all weights from the safetensors index or header; without it ``parameters`` is None.
    """
    language = next((part for name in _LANGUAGE_PARTS if (part := section(config, name))), config)
    vision = section(config, "vision_config")
    parameters, bytes_each = _weights(config, language, total_bytes)
    return ModelFacts(
        architecture=_architecture(config),
        parameters=parameters,
        bytes_per_parameter=bytes_each,
        **attention_facts(language, _architecture(config)),
        attention_heads=count(language, "num_attention_heads"),
        feed_forward_size=_feed_forward_size(language),
        experts=_first_count(language, _EXPERTS),
        expert_size=count(language, "moe_intermediate_size"),
        quantization=_method(config, language),
        quantised_group=_quantised_group(config, language),
        quantised_block=_quantised_block(config, language),
        vision_hidden_size=count(vision, "hidden_size")
        if text(config, "model_type") not in _OTHER_VISION_SIZE
        else None,
        vision_heads=_first_count(vision, _VISION_HEADS),
        embedding_values_per_token=_embedding_values(language, vision),
        patch_size=count(vision, "patch_size"),
        context_length=_context_length(language),
    )


def _first_count(config: Mapping[str, Any], names: Sequence[str]) -> int | None:
    return next((found for name in names if (found := count(config, name)) is not None), None)


def _architecture(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    return first if isinstance(first, str) and re.fullmatch(r"[A-Za-z0-9_]{1,128}", first) else None


def _embedding_values(language: Mapping[str, Any], vision: Mapping[str, Any]) -> int | None:
    """The vision encoder outputs the language model's hidden size, plus once more for each deepstack level."""
    hidden, deepstack = count(language, "hidden_size"), vision.get("deepstack_visual_indexes")
    levels = 1 + (len(deepstack) if isinstance(deepstack, list) else 0)
    return hidden * levels if vision and hidden and hidden * levels <= MOST else None


def _context_length(language: Mapping[str, Any]) -> int | None:
    """As the engine derives it (get_context_length of utils/hf_transformers/common.py): a factor of rope scaling counts, unless
    the file says what it scales from."""
    named = next((language[name] for name in _CONTEXT if language.get(name) is not None), None)
    if not isinstance(named, int) or isinstance(named, bool):
        return None
    scaling = section(language, "rope_scaling")
    scaled = "original_max_position_embeddings" not in scaling and scaling.get("rope_type") != "llama3"
    factor = scaling.get("factor", 1) if scaled else 1
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0 < factor <= MOST:
        return None
    length = int(named * factor)
    return length if 1 <= length <= _MOST_CONTEXT else None


def _feed_forward_size(language: Mapping[str, Any]) -> int | None:
    """None for mixtures of experts: they often state a width that no layer uses."""
    return None if _first_count(language, _EXPERTS) else count(language, "intermediate_size")


# Parts of the language model whose input is split over tensor ranks, and other parts with such names.
_SPLIT_PARTS: Final = ("mlp", "self_attn", "down_proj", "o_proj")
_NOT_SPLIT: Final = ("vis", "mlp1", "gate")


def _quantised_group(config: Mapping[str, Any], language: Mapping[str, Any]) -> int | None:
    """The smallest group that is stated; None for one scale a column (-1 or nothing), and where the file leaves some layers
    out of its quantisation, since it may be all of them that a split would cut."""
    quantised = section(config, "quantization_config") or section(language, "quantization_config")
    named = [quantised.get(key) for key in ("modules_to_not_convert", "ignore", "dynamic")]
    left_out = [name for names in named if isinstance(names, list | Mapping) for name in names if isinstance(name, str)]
    if any(any(p in name for p in _SPLIT_PARTS) and not any(p in name for p in _NOT_SPLIT) for name in left_out):
        return None
    groups = section(quantised, "config_groups").values()
    weights = [section(group, "weights") for group in groups if isinstance(group, Mapping)]
    stated = [count(part, key) for part in (quantised, *weights) for key in ("group_size", "q_group_size")]
    return min((size for size in stated if size is not None), default=None)


def _quantised_block(config: Mapping[str, Any], language: Mapping[str, Any]) -> int | None:
    """The side of a square block: ``[128, 128]`` in every fp8 checkpoint of DeepSeek and Qwen. None if not square."""
    quantised = section(config, "quantization_config") or section(language, "quantization_config")
    sides = quantised.get("weight_block_size")
    if not isinstance(sides, list) or len(sides) != 2 or sides[0] != sides[1]:
        return None
    return count({"side": sides[0]}, "side")


# Methods of NVIDIA's ModelOpt, by what quant_algo begins with -> the engine's names (configs/model_config.py).
_MODELOPT: Final = {"FP8": "modelopt_fp8", "NVFP4": "modelopt_fp4", "FP4": "modelopt_fp4", "MIXED": "modelopt_mixed"}


def _method(config: Mapping[str, Any], language: Mapping[str, Any]) -> str | None:
    quantised = section(config, "quantization_config") or section(language, "quantization_config")
    method, algorithm = text(quantised, "quant_method").lower(), text(quantised, "quant_algo").upper()
    if method in ("", "modelopt"):
        method = next((name for start, name in _MODELOPT.items() if algorithm.startswith(start)), method)
    return method if re.fullmatch(r"[a-z0-9_-]{1,32}", method) else None


def _weights(
    config: Mapping[str, Any], language: Mapping[str, Any], total_bytes: int | None
) -> tuple[float | None, float]:
    """The number of parameters and the bytes per parameter in the engine. Their product is the size of the weights.

    A quantised checkpoint keeps some layers in bf16: its total size is exact, and the number is derived from it.
    """
    quantised = section(config, "quantization_config") or section(language, "quantization_config")
    size = total_bytes if total_bytes is not None and 0 < total_bytes <= _MOST_BYTES else None
    if quantised:
        each = _quantised_bits(quantised) / 8
        return (None if size is None else size / each), each
    named = next((t for c in (config, language) for n in ("dtype", "torch_dtype") if (t := text(c, n))), "")
    stored = _STORED_BYTES.get(named.removeprefix("torch."))
    return (None if size is None or stored is None else float(size // stored)), _SERVED_BYTES


def _quantised_bits(quantised: Mapping[str, Any]) -> int:
    """Bits per quantised weight; 16 if not stated. The product with the number of parameters stays correct."""
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "").lower()
    if "fp8" in method or quantised.get("load_in_8bit") is True:
        return 8
    if method == "awq" or "fp4" in method or quantised.get("load_in_4bit") is True:
        return 4
    groups = section(quantised, "config_groups").values()
    weights = next((section(g, "weights") for g in groups if isinstance(g, Mapping)), {})
    stated = [quantised.get("bits"), quantised.get("w_bit"), weights.get("num_bits")]
    return next((b for b in stated if isinstance(b, int) and not isinstance(b, bool) and b in (2, 3, 4, 8)), 16)
