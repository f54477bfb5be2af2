"""What depends on the GPUs alone, whatever the model, and serving on the CPU, to try things without a GPU."""

from collections.abc import Iterator

from vlm_api.plan import Setting, Sharing, Source
from vlm_operator.sglang import memory
from vlm_operator.sglang.budget import budget
from vlm_operator.sglang.context import Context, Declared, applied, left
from vlm_operator.sglang.expected import applies_hopper_set
from vlm_operator.sglang.ranks import rank_count


def no_cuda_ipc_on_shares(context: Context, declared: Declared) -> Iterator[Setting]:
    """The engine would use CUDA IPC on a MIG slice or vGPU that is as large as a GPU, although neither is known to support it."""
    gpu = context.gpu
    if gpu is None or "mm_feature_transport" in declared or not (gpu.virtual or gpu.sharing is Sharing.MIG):
        return
    if applies_hopper_set(context) and context.knows("mm_feature_transport"):
        yield applied(
            "mm_feature_transport",
            "cpu",
            Source.HARDWARE,
            "hardware.vgpu_transport" if gpu.virtual else "hardware.mig_transport",
            "NVIDIA does not list CUDA IPC among the features of vGPUs, and the engine would use it on one of this size"
            if gpu.virtual
            else "MIG slices do not support CUDA IPC, which the engine would use on a slice of this size",
        )


def base_attention_backend(context: Context, declared: Declared) -> Iterator[Setting]:
    """The base attention backend stays the engine's: no measurement suggests another."""
    if context.cuda and context.family is not None:
        yield left(
            "attention_backend", "engine.attention_backend", "left to the engine, which chooses by compute capability"
        )


LEAST_TOKENS = 8192
DEFAULT_REQUESTS = 4


def on_the_cpu(context: Context, declared: Declared) -> Iterator[Setting]:
    """What the engine needs to serve on a CPU without taking the whole host."""
    if context.cuda:
        return
    total = budget(context, declared)
    requests = context.spec.workload.concurrency or DEFAULT_REQUESTS
    tokens = max(LEAST_TOKENS, memory.round_up(requests * total.request_tokens, 1024))
    yield applied(
        "max_total_tokens",
        tokens,
        Source.HARDWARE,
        "cpu.kv_cache",
        f"{requests} requests of {total.request_tokens:,} tokens, at least {LEAST_TOKENS:,}; "
        "unset, the engine would size the KV cache by the whole host's memory, whatever the pod's limit is",
        "measured with SGLang 0.5.23: more than 8 GB for a model of 1 MB",
    )
    yield applied(
        "TORCHDYNAMO_DISABLE",
        1,
        Source.HARDWARE,
        "cpu.no_compiler",
        "torch would compile kernels at the first batch, and the engine's image may have no C++ compiler",
    )
    if context.knows("sleep_on_idle"):
        yield applied(
            "sleep_on_idle",
            True,
            Source.HARDWARE,
            "cpu.sleep_on_idle",
            "an idle scheduler would otherwise keep a core busy",
            "measured with SGLang 0.5.23: 60 % of a core without a request",
        )
    ranks = rank_count(context.spec, context.choices)
    if ranks > 1 and context.engine.has_variable("SGLANG_CPU_OMP_THREADS_BIND"):
        yield applied(
            "SGLANG_CPU_OMP_THREADS_BIND",
            "|".join(str(rank) for rank in range(ranks)),
            Source.HARDWARE,
            "cpu.threads",
            f"one core for each of {ranks} ranks; unset, the engine needs a NUMA node for each",
        )
