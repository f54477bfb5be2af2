"""How a copy of the model is spread over ranks, and how requests and attention are shared out among them."""

import math

from vlm_api.spec import VLMServiceSpec
from vlm_operator.sglang.choices import UserChoices
from vlm_operator.sglang.context import Context, Declared


def whole_copies(spec: VLMServiceSpec, choices: UserChoices) -> int:
    """Copies of all weights that ``parallelism.data`` makes: none beside the first where it groups the tensor ranks
    (``enable_dp_attention``)."""
    return 1 if choices.get("enable_dp_attention") else spec.parallelism.data


def rank_count(spec: VLMServiceSpec, choices: UserChoices, tensor: int | None = None) -> int:
    """Ranks of a replica, each on a device of its own; with another number of tensor ranks where one is given."""
    parallel = spec.parallelism
    return (parallel.tensor if tensor is None else tensor) * parallel.pipeline * whole_copies(spec, choices)


def attention_groups(context: Context, declared: Declared) -> int:
    """Groups of tensor ranks that each have all attention heads and requests of their own.

    ``attn_dp_size`` since 0.5.22; before, and still, ``enable_dp_attention`` makes them of ``parallelism.data``
    (arg_groups/parallel_hook.py).
    """
    stated = declared.value("attn_dp_size")
    if isinstance(stated, int) and stated > 1:
        return stated
    return context.spec.parallelism.data if declared.value("enable_dp_attention") else 1


def request_groups(context: Context, declared: Declared) -> int:
    """Groups of ranks, among which requests are shared out: attention groups, or data ranks. There are never both."""
    return max(attention_groups(context, declared), whole_copies(context.spec, context.choices))


def running_limit(context: Context, declared: Declared) -> int | None:
    """Requests that each rank lets run at once: ``max_running_requests``, which attention groups divide among them and
    plain data ranks do not (mem_cache/kv_cache_configurator.py, resolve_max_num_reqs)."""
    limit = declared.value("max_running_requests")
    return None if limit is None else math.ceil(int(limit) / attention_groups(context, declared))


def running_share(context: Context, declared: Declared) -> int | None:
    """Requests that run on each rank at once when as many are in flight as are declared; None where nothing limits them."""
    limit, concurrency = running_limit(context, declared), context.spec.workload.concurrency
    copies = whole_copies(context.spec, context.choices)
    if limit is None or concurrency is None or copies == 1:
        return limit
    return min(limit, math.ceil(concurrency / copies))
