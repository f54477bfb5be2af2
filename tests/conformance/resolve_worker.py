# ruff: noqa: E402  Transformers has to be changed before the engine is imported.
"""What the real SGLang would use: its own parser and resolution, on a GPU that is only described.

Runs in the engine's own Python (``PYTHONPATH`` with the unchanged wheel): one JSON request a line in, one answer a line out.

    {"args": [...], "env": {...}, "capability": [9, 0], "memoryMiB": 81559}    and "fields": [names], where others are wanted
    {"fields": {...}, "graph": {...}, "env": {...}}   or   {"refused": "..."}

The described facts go in through the engine's own seam for tests (``runtime_context.override_platform``, since 0.5.19) and
through the places that look at the device directly. Nothing else of the engine is replaced, and no GPU is needed.
An older release also registers model types that the installed Transformers has by now, which is allowed here.
"""

import contextlib
import io
import json
import os
import sys
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["SGLANG_PLUGINS"] = "none"  # our own platform plugin for the CPU must not stand in for the described GPU

import transformers

register = transformers.AutoConfig.register
transformers.AutoConfig.register = staticmethod(
    lambda kind, config, exist_ok=True: register(kind, config, exist_ok=True)
)

import sglang.srt.arg_groups.memory_hook as memory_hook
import sglang.srt.arg_groups.model_overrides.qwen3_vl as qwen3_vl
import sglang.srt.arg_groups.pipeline as pipeline
import sglang.srt.model_executor.cuda_graph_config as cuda_graph_config
from sglang.srt import runtime_context
from sglang.srt.server_args import prepare_server_args

VARIABLES = ("SGLANG_VLM_CACHE_SIZE_MB", "SGLANG_MM_FEATURE_CACHE_MB", "SGLANG_USE_CUDA_IPC_TRANSPORT")
FIELDS = (
    "attention_backend",
    "decode_attention_backend",
    "max_running_requests",
    "mm_feature_transport",
    "mm_preprocess_cache_size_mb",
    "prefill_decode_interval",
    "radix_eviction_policy",
    "mem_fraction_static",
    "chunked_prefill_size",
)


def described(major, minor, memory_mib):
    facts = {
        "is_cuda": True,
        "is_sm90": major == 9,
        "is_sm100": major == 10,
        "is_sm100_or_sm110": major in (10, 11),
        "is_sm110": major == 11,
        "is_sm120": major == 12,
        "is_blackwell": major in (10, 11, 12),
        "is_hopper_with_cuda_12_3": major == 9,
        "has_amx": False,
        "has_flashinfer": True,
        "device_sm": 10 * major + minor,
        "device_capability": (major, minor),
    } | dict.fromkeys(("is_hip", "is_npu", "is_xpu", "is_musa", "is_mps"), False)
    known = {*runtime_context._PLATFORM_PROBES, *runtime_context._PLATFORM_VALUES}
    stack = contextlib.ExitStack()
    stack.enter_context(runtime_context.override_platform(**{k: v for k, v in facts.items() if k in known}))
    for module, name, answer in (
        (qwen3_vl, "is_sm90_supported", major == 9),
        (qwen3_vl, "get_device_memory_capacity", memory_mib),
        (memory_hook, "get_device_memory_capacity", memory_mib),
        (pipeline, "get_device_memory_capacity", memory_mib),
        (cuda_graph_config, "default_prefill_backend", "breakable"),
    ):
        if hasattr(module, name):  # not everything is asked in every release
            stack.enter_context(mock.patch.object(module, name, lambda *_, answer=answer, **__: answer))
    return stack


def resolve(request):
    before, said = dict(os.environ), io.StringIO()
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(request["env"])
    try:
        with described(*request["capability"], request["memoryMiB"]), contextlib.redirect_stderr(said):
            parsed = prepare_server_args([*request["args"], "--device", "cuda", "--log-level", "error"])
            parsed.resolve_once()
            fields = parsed.resolved_dict()
        decode = (fields.get("cuda_graph_config") or {}).get("decode") or {}
        return {
            "fields": {name: fields.get(name) for name in request.get("fields", FIELDS)},
            "graph": decode.get("max_bs"),
            "env": {name: os.environ.get(name) for name in VARIABLES},
        }
    except SystemExit:
        return {"refused": said.getvalue()[-600:]}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:600]}
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever the engine prints must not get between the answers
    for line in sys.stdin:
        print(json.dumps(resolve(json.loads(line)), default=str), file=answers, flush=True)
