"""How requests and attention are shared out among a copy's ranks."""

from __future__ import annotations

import math

from vlm_operator.resolve.context import Context, Declared


def attention_groups(context: Context, declared: Declared) -> int:
    """Groups of tensor ranks that each have all attention heads and requests of their own.

    ``attn_dp_size`` since 0.5.22; before, and still, ``enable_dp_attention`` makes them of ``parallelism.data``
    (arg_groups/parallel_hook.py).
    """
    said = declared.value("attn_dp_size")
    if isinstance(said, int) and said > 1:
        return said
    return context.spec.parallelism.data if declared.value("enable_dp_attention") else 1


def running_limit(context: Context, declared: Declared) -> int | None:
    """Requests that each rank lets run at once: ``max_running_requests``, which attention groups divide among them and
    plain data ranks do not (mem_cache/kv_cache_configurator.py, resolve_max_num_reqs)."""
    limit = declared.value("max_running_requests")
    return None if limit is None else math.ceil(int(limit) / attention_groups(context, declared))


def running_share(context: Context, declared: Declared) -> int | None:
    """Requests that run on each rank at once when as many are in flight as are declared; None where nothing limits them."""
    limit, concurrency = running_limit(context, declared), context.spec.workload.concurrency
    data = context.spec.parallelism.data
    if limit is None or concurrency is None or data == 1 or attention_groups(context, declared) > 1:
        return limit
    return min(limit, math.ceil(concurrency / data))
