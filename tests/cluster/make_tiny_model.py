#!/usr/bin/env python3
"""Writes a tiny Qwen3-VL with random weights: make_tiny_model.py FOLDER

Its answers are noise, but the engine takes every real step with it: image preprocessing, vision encoder, prefill,
decoding, streaming. Two layers of width 64 and a byte-level vocabulary of 512 keep it below one megabyte, so it loads
at once and answers in milliseconds on a CPU. Needs the engine's own torch and transformers.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

VOCABULARY = 512
WIDTH = 64
PATCH, MERGE, FRAMES = 16, 2, 2  # pixels a patch, patches merged in each direction, frames a patch
END, PAD = "<|im_end|>", "<|endoftext|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
SPECIAL = [PAD, "<|im_start|>", END, VISION_START, VISION_END, "<|vision_pad|>", IMAGE, VIDEO]

# Qwen's chat format, cut down to text and images.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}"
    "{% for part in message.content %}"
    "{% if part.type in ['image', 'image_url'] or 'image' in part or 'image_url' in part %}"
    f"{VISION_START}{IMAGE}{VISION_END}"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}"
    "{% endfor %}"
    "{% endif %}"
    "<|im_end|>{{ '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, a few merges, and the special tokens: fewer than the model's vocabulary."""
    bytes_tokenizer = Tokenizer(models.BPE(unk_token=None))
    bytes_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    bytes_tokenizer.train_from_iterator(["what is in this picture?"] * 50, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_tokenizer, eos_token=END, pad_token=PAD)
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
    tokenizer.chat_template = CHAT_TEMPLATE
    if len(tokenizer) > VOCABULARY:
        raise ValueError(f"{len(tokenizer)} tokens do not fit into a vocabulary of {VOCABULARY}")
    return tokenizer


def make_config(token: dict[str, int]) -> Qwen3VLConfig:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2], "mrope_interleaved": True}
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_parameters": rope,
        "bos_token_id": None,
        "eos_token_id": token[END],
        "pad_token_id": token[PAD],
    }
    vision = {
        "depth": 2,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_heads": 4,
        "out_hidden_size": WIDTH,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
    }
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=token[IMAGE],
        video_token_id=token[VIDEO],
        vision_start_token_id=token[VISION_START],
        vision_end_token_id=token[VISION_END],
        tie_word_embeddings=False,
    )


def processor_files(token: dict[str, int]) -> dict[str, dict[str, Any]]:
    """The files that `save_pretrained` of model and tokenizer do not write."""
    common = {
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    return {
        "generation_config.json": {"do_sample": False, "eos_token_id": token[END]},
        "preprocessor_config.json": common
        | {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "processor_class": "Qwen3VLProcessor",
            "size": {"shortest_edge": 65536, "longest_edge": 16777216},
        },
        "video_preprocessor_config.json": common
        | {
            "video_processor_type": "Qwen3VLVideoProcessor",
            "size": {"shortest_edge": 4096, "longest_edge": 25165824},
        },
    }


def main(folder: Path) -> None:
    tokenizer = make_tokenizer()
    token = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIAL}
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    Qwen3VLForConditionalGeneration(make_config(token)).to(torch.bfloat16).save_pretrained(folder)
    for name, content in processor_files(token).items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    for file in folder.iterdir():  # safetensors writes files that nobody else may read; pods run as another user
        file.chmod(0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
