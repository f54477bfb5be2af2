"""What one token and one running request take in the real SGLang, by its own model config and KV configurator.

Runs in the engine's own Python, on a GPU that is only described (see resolve_worker.py): one JSON request a line in, one
answer a line out.

    {"folder": "/folder/with/config.json", "args": [...]}
    {"kv": bytes of a token, "state": bytes of a state, "slots": states of a running request}   or   {"refused": "..."}
"""

import contextlib
import io
import json
import sys
import types

from resolve_worker import described
from sglang.srt.arg_groups.model_override_base import model_config_of
from sglang.srt.configs.hybrid_arch import mambaish_config
from sglang.srt.configs.model_config import AttentionArch
from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
from sglang.srt.model_executor import pool_configurator
from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices
from sglang.srt.runtime_context import get_schedule, publish, reset_context
from sglang.srt.server_args import prepare_server_args
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

ARGS = ["--device", "cuda", "--log-level", "error", "--skip-tokenizer-init"]


def measured(request):
    reset_context()
    with described(9, 0, 81_559), contextlib.redirect_stderr(io.StringIO()):
        parsed = prepare_server_args(["--model-path", request["folder"], *ARGS, *request["args"]])
        parsed.resolve_once()
        publish(parsed, role="scheduler")
        config = model_config_of(parsed)
        configurator = types.SimpleNamespace(
            model_config=config,
            server_args=parsed,
            kv_cache_dtype=config.dtype,
            kv_cache_dtype_str="auto",
            model_dtype=config.dtype,
            page_size=get_schedule().page_size,
            sliding_window_size=config.sliding_window_size,
            spec_algorithm=SpeculativeAlgorithm.NONE,
            is_draft_worker=False,
            is_hybrid_swa=config.is_hybrid_swa,
            use_mla_backend=config.attention_arch == AttentionArch.MLA,
            layer_info=resolve_layer_indices(model=types.SimpleNamespace(), model_config=config, is_draft_worker=False),
            pp_size=1,
            device="cuda",
            spec_aux_config=types.SimpleNamespace(
                eagle_draft_num_layers=None, eagle_draft_swa_num_layers=None, dflash_draft_num_layers=None
            ),
            kv_shard_spec=None,
            kv_shard_size=1,
            fused_entry_bytes=lambda name: None,
            dflash_draft_cell_size_per_token=None,
            attn_dp_size=1,
        )
        states = mambaish_config(config)
        return {
            "kv": pool_configurator.create_memory_pool_configurator(configurator)._cell_size,
            "state": 0 if states is None else states.mamba2_cache_params.mamba_cache_per_req,
            "slots": None if states is None else KVCacheConfigurator._calculate_mamba_ratio(configurator),
        }


def answer(request):
    try:
        return measured(request)
    except (Exception, SystemExit) as error:
        return {"refused": f"{type(error).__name__}: {error}"[:600]}


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line)), default=str), file=answers, flush=True)
