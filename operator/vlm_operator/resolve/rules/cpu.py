"""Serving on the CPU, for trying things out without a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Setting, Source
from vlm_operator import memory
from vlm_operator.resolve.budget import budget
from vlm_operator.resolve.context import Context, Declared, applied
from vlm_operator.resolve.ranks import rank_count

LEAST_TOKENS = 8192
DEFAULT_REQUESTS = 4


def on_the_cpu(context: Context, declared: Declared) -> Iterator[Setting]:
    """What the engine needs to serve on a CPU at all, and not to take the whole host."""
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
        "seen on SGLang 0.5.23: more than 8 GB for a model of 1 MB",
    )
    yield applied(
        "TORCHDYNAMO_DISABLE",
        1,
        Source.HARDWARE,
        "cpu.no_compiler",
        "torch would compile kernels at the first batch, and the engine's image need not have a C++ compiler",
    )
    if context.knows("sleep_on_idle"):
        yield applied(
            "sleep_on_idle",
            True,
            Source.HARDWARE,
            "cpu.sleep_on_idle",
            "an idle scheduler would otherwise keep a core busy",
            "seen on SGLang 0.5.23: 60 % of a core without a request",
        )
    ranks = rank_count(context.spec, context.choices)
    if ranks > 1 and context.engine.has_variable("SGLANG_CPU_OMP_THREADS_BIND"):
        yield applied(
            "SGLANG_CPU_OMP_THREADS_BIND",
            "|".join(str(rank) for rank in range(ranks)),
            Source.HARDWARE,
            "cpu.threads",
            f"one core for each of {ranks} ranks; unset, the engine wants a NUMA node for each",
        )
