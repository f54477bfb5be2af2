"""Video arithmetic is the real processor's: tokens and bytes that SGLang's own processors make of videos."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vlm_operator.sglang.profiles import family_of, shipped
from vlm_operator.sglang.videos import Clip, Sampling

SEED = 1000
CLIPS = 10
WORKER = Path(__file__).with_name("video_worker.py")
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "SGLANG_PLUGINS": "none",
    "CUDA_VISIBLE_DEVICES": "",
    "TOKENIZERS_PARALLELISM": "false",
}

QWEN_TOKENS = [
    "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
    "<|audio_pad|>", "<|audio_start|>", "<|audio_end|>",
]  # fmt: skip
QWEN = {
    "tokens": QWEN_TOKENS,
    "ids": {
        "image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>",
    },
    "placeholder": "<|vision_start|><|video_pad|><|vision_end|>",
}  # fmt: skip
SHAPE = {"merge_size": 2, "temporal_patch_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
PIXELS = {"min_pixels": 3136, "max_pixels": 12845056}


def qwen2(processor: str, patch: int) -> dict[str, Any]:
    """The one file that Qwen2-VL publishes, for images and videos."""
    kind = {"image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": processor}
    return {"preprocessor_config.json": {**SHAPE, **kind, **PIXELS, "patch_size": patch}}


def qwen3() -> dict[str, Any]:
    shape = {**SHAPE, "patch_size": 16}
    images = {"image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor"}
    return {
        "preprocessor_config.json": {**shape, **images, "size": {"shortest_edge": 65536, "longest_edge": 16777216}},
        "video_preprocessor_config.json": {
            **shape,
            "video_processor_type": "Qwen3VLVideoProcessor",
            "size": {"shortest_edge": 4096, "longest_edge": 25165824},
        },
    }


OMNI = {
    "named": {
        "image_token": "<|image_pad|>", "audio_token": "<|audio_pad|>", "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
        "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>",
    },
    "ids_in": "thinker_config",
}  # fmt: skip
OMNI_FILES = qwen2("Qwen3OmniMoeProcessor", 16)
OMNI_FILES["preprocessor_config.json"] |= {
    "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "n_fft": 400,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "Qwen2VLForConditionalGeneration": {
        **QWEN, "config": {"model_type": "qwen2_vl"}, "files": qwen2("Qwen2VLProcessor", 14),
    },
    "Qwen2_5_VLForConditionalGeneration": {
        **QWEN, "config": {"model_type": "qwen2_5_vl"}, "files": qwen2("Qwen2_5_VLProcessor", 14),
    },
    "Qwen3VLForConditionalGeneration": {**QWEN, "config": {"model_type": "qwen3_vl"}, "files": qwen3()},
    "Qwen3VLMoeForConditionalGeneration": {**QWEN, "config": {"model_type": "qwen3_vl_moe"}, "files": qwen3()},
    "Qwen3_5ForConditionalGeneration": {**QWEN, "config": {"model_type": "qwen3_5"}, "files": qwen3()},
    "Qwen4ExpForConditionalGeneration": {**QWEN, "config": {"model_type": "qwen4_exp"}, "files": qwen3()},
    "InternS2MobiusForConditionalGeneration": {**QWEN, "config": {"model_type": "interns2_mobius"}, "files": qwen3()},
    "Qwen3OmniMoeForConditionalGeneration": {
        **QWEN, **OMNI, "config": {"model_type": "qwen3_omni_moe"}, "files": OMNI_FILES,
    },
}  # fmt: skip
GLM_TOKENS = [
    "<|endoftext|>", "<|image|>", "<|video|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>",
    "<|end_of_video|>",
]  # fmt: skip
GLM = {
    "tokens": GLM_TOKENS,
    "ids": {
        "image_token_id": "<|image|>", "video_token_id": "<|video|>", "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>", "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>",
    },
    "placeholder": "<|begin_of_video|><|video|><|end_of_video|>",
}  # fmt: skip


def glm(kind: str) -> dict[str, Any]:
    shape = {**SHAPE, "patch_size": 14}
    images = {"image_processor_type": f"{kind}ImageProcessor", "processor_class": f"{kind}Processor"}
    return {
        "preprocessor_config.json": {**shape, **images, "size": {"shortest_edge": 12544, "longest_edge": 9633792}},
        "video_preprocessor_config.json": {
            **shape,
            "video_processor_type": f"{kind}VideoProcessor",
            "size": {"shortest_edge": 12544, "longest_edge": 47040000},
        },
    }


INTERNVL = {
    "architecture": "InternVLChatModel",
    "tokens": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<|video_pad|>"],
    "ids": {},
    "bare": True,
    "files": {},
    "placeholder": "<video>",
    "config": {
        "model_type": "internvl_chat", "downsample_ratio": 0.5, "force_image_size": 448,
        "vision_config": {
            "model_type": "intern_vit_6b", "architectures": ["InternVisionModel"], "image_size": 448, "patch_size": 14,
        },
        "llm_config": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    },
}  # fmt: skip
# What of a family's numbers is another here: it has several models of one architecture.
FIXED, BY_LENGTH = {"rates": ["fixed"]}, {"rates": ["by_length"]}
FAMILIES |= {
    "GLM-4.1V": {
        **GLM, "architecture": "Glm4vForConditionalGeneration", "config": {"model_type": "glm4v"}, "files": glm("Glm4v"),
        "numbers": FIXED,
    },
    "GLM-4.5V": {
        **GLM, "architecture": "Glm4vMoeForConditionalGeneration", "config": {"model_type": "glm4v_moe"},
        "files": glm("Glm4v"), "numbers": FIXED,
    },
    "GLM-4.6V": {
        **GLM, "architecture": "Glm4vMoeForConditionalGeneration", "config": {"model_type": "glm4v_moe"},
        "files": glm("Glm46V"), "numbers": BY_LENGTH,
    },
    "GLM-5.3": {
        **GLM, "architecture": "Glm5NextForConditionalGeneration",
        "config": {
            "model_type": "glm5_next", "vision_config": {"spatial_merge_size": 2, "patch_size": 14, "swiglu_limit": 7.0},
        },
        "files": {
            "preprocessor_config.json": {
                "image_processor_type": "Glm5NextImageProcessor", "processor_class": "Glm5NextProcessor",
            },
            "video_preprocessor_config.json": {"video_processor_type": "Glm5NextVideoProcessor"},
        },
    },
    "InternVL": INTERNVL,
    "InternVL in a short context": {**INTERNVL, "context_length": 4096},
}  # fmt: skip
FAMILIES["Gemma4ForConditionalGeneration"] = {
    "tokens": [
        "<pad>", "<eos>", "<bos>", "<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", "<|video|>",
    ],
    "named": {
        "image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>", "audio_token": "<|audio|>",
        "boa_token": "<|audio>", "eoa_token": "<audio|>", "video_token": "<|video|>",
    },
    "ids": {
        "image_token_id": "<|image|>", "boi_token_id": "<|image>", "eoi_token_id": "<image|>", "audio_token_id": "<|audio|>",
        "boa_token_id": "<|audio>", "eoa_token_id": "<audio|>", "video_token_id": "<|video|>",
    },
    "placeholder": "<|video|>",
    "config": {"model_type": "gemma4"},
    "files": {
        "processor_config.json": {
            "processor_class": "Gemma4Processor", "image_seq_length": 280, "audio_seq_length": 750,
            "image_processor": {"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 280},
            "feature_extractor": {"feature_extractor_type": "Gemma4AudioFeatureExtractor"},
            "video_processor": {"video_processor_type": "Gemma4VideoProcessor"},
        },
    },
}  # fmt: skip
FAMILIES["NemotronH_Nano_VL_V2"] = {
    "config_class": "sglang.srt.configs.nano_nemotron_vl.NemotronH_Nano_VL_V2_Config",
    "tokens": ["<unk>", "<s>", "</s>", "<image>", "<img>", "</img>", "<video>"],
    "unknown": "<unk>",
    "ids": {},
    "bare": True,
    "files": {},
    "placeholder": "<video>",
    "config": {
        "image_size": 512, "force_image_size": 512, "patch_size": 16, "downsample_ratio": 0.5, "use_thumbnail": True,
        "norm_mean": [0.5] * 3, "norm_std": [0.5] * 3, "video_context_token": "<video>", "img_context_token": "<image>",
        "img_start_token": "<img>", "img_end_token": "</img>", "video_pruning_rate": 0.0, "sound_config": None,
    },
}  # fmt: skip
FAMILIES["MiniMaxM3SparseForConditionalGeneration"] = {
    "tokens": [
        "[e~[", "]<]image[>[", "]<]video[>[", "]<]start of image[>[", "]<]end of image[>[", "]<]start of video[>[",
        "]<]end of video[>[",
    ],
    "ids": {"image_token_index": "]<]image[>[", "video_token_index": "]<]video[>["},
    "placeholder": "]<]video[>[",
    "config": {"model_type": "minimax_m3_vl"},
    "files": {"preprocessor_config.json": {"size": [672, 672], "patch_size": 14}},
    "dtype": "bfloat16",
}  # fmt: skip
# They read the videos of a request to refuse it.
REFUSING = {"KimiK3ForConditionalGeneration", "DiffusionGemmaForBlockDiffusion"}
# The user's own limits, for those families whose algorithm reads them.
LIMITED: dict[str, list[dict[str, Any]]] = {
    "qwen": [
        {"fps": 1.0, "max_frames": 6}, {"nframes": 5}, {"max_pixels": 50_000}, {"min_pixels": 700_000},
        {"total_pixels": 1_000_000, "min_pixels": 3136}, {"size": {"shortest_edge": 4096, "longest_edge": 1_000_000}},
    ],
    "glm_canvas": [{"fps": 1, "max_frames": 5}, {"max_image_tokens": 100}],
    "glm": [{"size": {"shortest_edge": 12544, "longest_edge": 1_000_000}}],
}  # fmt: skip


def clips() -> list[list[int]]:
    """Seconds, frames per second, width, height."""
    chance = random.Random(SEED)
    return [
        [chance.randint(2, 16), chance.randint(1, 30), chance.randint(16, 640), chance.randint(16, 640)]
        for _ in range(CLIPS)
    ]


def sampling_of(name: str) -> Sampling:
    described = FAMILIES[name]
    family = family_of(described.get("architecture", name))
    assert family is not None
    assert family.videos is not None
    sampling = family.videos.model_copy(update=described.get("numbers", {}))
    return sampling.beside(described.get("context_length"), len("<video>") + 2)


def cases_of(name: str) -> list[tuple[list[int], dict[str, Any]]]:
    """Videos, with the user's limits for some."""
    limits = LIMITED.get(sampling_of(name).algorithm, [])
    return [*((clip, {}) for clip in clips()), *(([8, 25, 400, 300], each) for each in limits)]


@pytest.fixture(scope="module")
def answers(engine_site: Path) -> dict[str, Any]:
    """What the processors make of them, all in one process: it takes long to start."""
    families = {name: {"architecture": name, **family, "cases": cases_of(name)} for name, family in FAMILIES.items()}
    request = {"families": families, "architectures": [name for family in shipped() for name in family.architectures]}
    done = subprocess.run(
        [sys.executable, "-s", str(WORKER)],
        input=json.dumps(request),
        env=os.environ | OFFLINE | {"PYTHONPATH": str(engine_site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", FAMILIES)
def test_tokens_and_bytes_of_videos_are_the_processor_s(name: str, answers: dict[str, Any]) -> None:
    for (clip, limits), answer in zip(cases_of(name), answers["made"][name], strict=True):
        video = sampling_of(name).limited({"video": limits}).sample(Clip(*clip))
        ours = {"prompt_tokens": video.prompt_tokens, "tokens": video.tokens, "bytes": video.bytes}
        assert ours == answer, f"{clip} {limits}"


def test_families_that_take_no_videos_are_those_whose_processors_read_none(answers: dict[str, Any]) -> None:
    for family in shipped():
        for architecture in family.architectures:
            if family.family != "grok_1" and architecture not in REFUSING:  # the engine has no processor of Grok
                assert answers["reads"][architecture] == family.takes_videos, architecture
