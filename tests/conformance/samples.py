"""Random services and GPUs, the same ones in every run."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Product, memory in MiB, compute capability. The first two Hopper rows sit on both sides of the set's limit.
GPUS = (
    ("NVIDIA-H100-60GB", 61_440, (9, 0)),
    ("NVIDIA-H100-60GB", 61_439, (9, 0)),
    ("NVIDIA-H100-80GB-HBM3", 81_559, (9, 0)),
    ("NVIDIA-H100-NVL", 95_830, (9, 0)),
    ("NVIDIA-H20", 97_871, (9, 0)),
    ("NVIDIA-H200", 143_771, (9, 0)),
    ("Tesla-T4", 15_360, (7, 5)),
    ("NVIDIA-A100-SXM4-40GB", 40_960, (8, 0)),
    ("NVIDIA-A100-SXM4-80GB", 81_920, (8, 0)),
    ("NVIDIA-A10G", 23_028, (8, 6)),
    ("NVIDIA-L4", 23_034, (8, 9)),
    ("NVIDIA-L40S", 46_068, (8, 9)),
    ("NVIDIA-GeForce-RTX-4090", 24_564, (8, 9)),
    ("NVIDIA-B200", 183_359, (10, 0)),
    ("NVIDIA-B300-SXM6-AC", 275_040, (10, 3)),
    ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97_887, (12, 0)),
)
# Name -> config.json of models of many families; the first of each are the two with a measured profile.
CONFIGS: dict[str, dict[str, Any]] = {
    row["name"]: row["config"]
    for row in map(json.loads, Path(__file__).with_name("configs.jsonl").read_text("utf-8").splitlines())
}
PROFILED = ("qwen3_vl_8b", "qwen3_vl_30b_a3b")
SIZES = ((224, 224), (512, 512), (1280, 720), (1920, 1080), (3840, 2160), (33, 4000))

# What users write: settings by name, flags in both spellings, variables.
SETTINGS: tuple[dict[str, Any], ...] = (
    {"prefill_decode_interval": 10},
    {"prefill_decode_interval": 0},
    {"attention_backend": "fa3"},
    {"attention_backend": "flashinfer"},
    {"decode_attention_backend": "fa3"},
    {"prefill_attention_backend": "flashinfer"},
    {"radix_eviction_policy": "lfu"},
    {"mm_preprocess_cache_size_mb": 0},
    {"mm_preprocess_cache_size_mb": 256},
    {"mm_feature_transport": "cpu"},
    {"mm_feature_transport": "cuda_ipc"},
    {"max_running_requests": 17},
    {"max_running_requests": 450},
    {"cuda_graph_max_bs_decode": 96},
    {"cuda_graph_bs_decode": [1, 2, 4, 8]},
    {"mem_fraction_static": 0.8},
    {"chunked_prefill_size": 4096},
    {"enable_deterministic_inference": True},
    {"kv_cache_dtype": "fp8_e5m2"},
    {"kv_cache_dtype": "fp8_e4m3"},
    {"SGLANG_VLM_CACHE_SIZE_MB": 512},
    {"SGLANG_VLM_CACHE_SIZE_MB": 0},
    {"SGLANG_MM_FEATURE_CACHE_MB": 2048},
)
# Ways of speculative decoding; a draft model is only named.
DRAFT = {"speculative_draft_model_path": "tiny/draft"}
SPECULATION: tuple[dict[str, Any], ...] = (
    {"speculative_algorithm": "NGRAM"},
    {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8},
    {"speculative_algorithm": "EAGLE3", **DRAFT},
    {"speculative_algorithm": "eagle", **DRAFT, "speculative_num_steps": 3, "speculative_eagle_topk": 1},
    {
        "speculative_algorithm": "NEXTN",
        **DRAFT,
        "speculative_num_steps": 2,
        "speculative_eagle_topk": 2,
        "speculative_num_draft_tokens": 4,
    },
    {
        "speculative_algorithm": "EAGLE3",
        **DRAFT,
        "speculative_num_steps": 5,
        "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 8,
    },
    {"speculative_algorithm": "STANDALONE", **DRAFT},
    {"speculative_algorithm": "DFLASH", **DRAFT, "speculative_num_draft_tokens": 8},
)
ARGS = (
    ["--radix-eviction-policy", "lru"],
    ["--radix-eviction-policy=lru"],
    ["--prefill-decode-interval=5"],
    ["--attention-backend", "flashinfer"],
    ["--mm-feature-transport=cpu"],
    ["--cuda-graph-max-bs-decode", "200"],
    ["--max-running-requests=390"],
    ["--disable-radix-cache"],
    ["--log-requests"],
    ["--stream-interval", "4"],
)
ENV = (
    ("SGLANG_VLM_CACHE_SIZE_MB", "100"),
    ("SGLANG_USE_CUDA_IPC_TRANSPORT", "0"),
    ("SGLANG_USE_CUDA_IPC_TRANSPORT", "false"),
    ("SGLANG_USE_CUDA_IPC_TRANSPORT", "1"),
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
)


@dataclass(frozen=True)
class Sample:
    """A VLMService's spec, its model's config and the GPU of every node."""

    model: str
    spec: dict[str, Any]
    product: str
    memory_mib: int
    capability: tuple[int, int]
    nodes: int


def samples(seed: int, count: int, version: str) -> list[Sample]:
    """``count`` samples, the same for the same seed; half of them on the GPUs that the override set is about."""
    chance = random.Random(seed)
    return [_sample(chance, version) for _ in range(count)]


def _sample(chance: random.Random, version: str) -> Sample:
    product, memory_mib, capability = chance.choice(GPUS[:6] if chance.random() < 0.5 else GPUS)
    nodes = chance.choice((1, 1, 1, 2, 4))
    tensor = nodes * chance.choice((1, 1, 2, 4, 8))
    workload: dict[str, Any] = {}
    if chance.random() < 0.9:
        workload["concurrency"] = chance.choice(
            (1, 8, 64, 256, 257, 399, 400, 401, 511, 512, 513, 600, chance.randint(1, 600))
        )
    images: dict[str, Any] = {"reuse": chance.choice(("SingleUse", "SingleUse", "Unknown", "Repeated"))}
    if chance.random() < 0.7:
        images["width"], images["height"] = chance.choice(SIZES)
        images["perRequest"] = chance.choice((1, 1, 2, 5))
    engine: dict[str, Any] = {"version": version}
    if chance.random() < 0.4:
        engine["settings"] = {k: v for s in chance.sample(SETTINGS, chance.choice((1, 1, 2, 3))) for k, v in s.items()}
    if chance.random() < 0.2:
        engine["settings"] = engine.get("settings", {}) | chance.choice(SPECULATION)
    if chance.random() < 0.3:
        engine["args"] = [a for args in chance.sample(ARGS, chance.choice((1, 1, 2))) for a in args]
    if chance.random() < 0.2:
        name, value = chance.choice(ENV)
        engine["env"] = [{"name": name, "value": value}]
    if chance.random() < 0.05:
        engine["tuning"] = "Off"
    model = chance.choice(PROFILED if chance.random() < 0.5 else tuple(CONFIGS))
    (architecture,) = CONFIGS[model]["architectures"]
    spec = {
        "model": {"uri": "hf://tiny/model", "architecture": architecture, "parametersBillion": 1},
        "workload": workload | {"images": images},
        "parallelism": {"tensor": tensor},
        "multinode": {"nodeCount": nodes},
        "engine": engine,
    }
    return Sample(model, spec, product, memory_mib, capability, nodes)
