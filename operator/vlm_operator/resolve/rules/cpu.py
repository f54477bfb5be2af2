"""Serving on the CPU, for trying things out: small pools, since the engine would size them for a server."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Setting, Source

from vlm_operator import memory
from vlm_operator.resolve.budget import budget
from vlm_operator.resolve.context import Context, Declared, applied

LEAST_TOKENS = 8192
FRACTION = 0.2
DEFAULT_REQUESTS = 4


def small_pools(context: Context, declared: Declared) -> Iterator[Setting]:
    """A KV cache for the declared traffic, and a small share of the host's memory."""
    if context.cuda:
        return
    total = budget(context, declared)
    requests = context.spec.workload.concurrency or DEFAULT_REQUESTS
    tokens = max(LEAST_TOKENS, memory.round_up(requests * total.request_tokens, 1024))
    yield applied(
        "max_total_tokens",
        tokens,
        Source.HARDWARE,
        "cpu.tokens",
        f"{requests} requests of {total.request_tokens} tokens, and at least {LEAST_TOKENS}: "
        "on a CPU the engine would size the KV cache by the host's memory",
    )
    yield applied(
        "mem_fraction_static", FRACTION, Source.HARDWARE, "cpu.memory", "the host's memory belongs to others as well"
    )
