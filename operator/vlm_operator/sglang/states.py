"""States that layers without a KV cache keep for each running request (linear attention, short convolutions).

SGLang 0.5.23: ``mem_cache/kv_cache_configurator.py`` (``_calculate_mamba_ratio``, ``_handle_max_mamba_cache``); read, and its
numbers run on a described GPU, not on a GPU.
"""

from typing import Final

from vlm_operator.sglang.catalogue.releases import known
from vlm_operator.sglang.context import Context, Declared

STRATEGIES: Final = ("mamba_radix_cache_strategy", "mamba_scheduler_strategy")
"""The setting's name today and before 0.5.14."""
RATIO: Final = "mamba_full_memory_ratio"
DEFAULT_RATIO: Final = 0.9
# Above it the KV cache gets next to nothing.
MOST_RATIO: Final = 1000.0
DTYPE: Final = "mamba_ssm_dtype"
_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}

# A running request, the radix cache's copies of it, and with an extra buffer the states that are tracked while it runs.
_SLOTS: Final = 3
_TRACKED: Final = 2


def slots_per_request(context: Context, declared: Declared) -> int:
    """State slots of one running request."""
    if declared.value("disable_radix_cache"):
        return 1
    strategy = next((value for name in STRATEGIES if (value := declared.value(name)) not in (None, "auto")), None)
    if strategy is None:
        architectures: list[str] = known()["states_with_extra_buffer"]["architectures"]
        supported = context.model.architecture in architectures and not declared.value("disable_overlap_schedule")
        strategy = "extra_buffer" if supported else "no_buffer"
    return _SLOTS + {"extra_buffer": _TRACKED, "extra_buffer_lazy": 1}.get(str(strategy), 0)


def share(declared: Declared) -> float | None:
    """The part of what weights and reserve leave that the states get; the KV cache has the rest. None without a radix cache:
    there are as many states as requests may run, and they come first."""
    if declared.value("disable_radix_cache"):
        return None
    value = declared.value(RATIO)
    ratio = DEFAULT_RATIO if value is None else min(max(float(value), 0.0), MOST_RATIO)
    return ratio / (1 + ratio)


def slots_set(declared: Declared, groups: int) -> int | None:
    """State slots of each rank, if the user sets their number (max_mamba_cache_size)."""
    value = declared.value("max_mamba_cache_size")
    return None if value is None else max(int(value) // groups, 1)


def dtype_bytes(declared: Declared) -> int | None:
    """Bytes of one value of a recurrent state, if the user sets its type."""
    return _BYTES.get(str(declared.value(DTYPE)))
