"""What the profile will add to the memory's sum, for rules that run before it."""

from vlm_api.plan import Source
from vlm_operator.sglang.context import Context, Declared, applied
from vlm_operator.sglang.profiles import ProfileSetting
from vlm_operator.sglang.profiles.needs import unmet
from vlm_operator.sglang.ranks import running_limit

# Settings of profiles that the sum of the device's memory has.
COUNTED = ("SGLANG_VLM_CACHE_SIZE_MB", "cuda_graph_max_bs_decode")


def as_profiled(context: Context, declared: Declared, transport: str | None = None) -> Declared:
    """What is declared so far, with those settings of the profile that count in the sum, and with ``transport``."""
    trial = Declared({setting.name: setting for setting in declared})
    if transport is not None:
        trial.add(applied("mm_feature_transport", transport, Source.PROFILE, "", ""))
    for item in context.profile.settings if context.profile else []:
        if item.name in COUNTED and item.name not in declared and unmet(context, declared, item.needs) is None:
            value = graph_limit(context, declared, item) if item.compute == "running_limit" else item.value
            trial.add(applied(item.name, value, Source.PROFILE, "", ""))
    return trial


def graph_limit(context: Context, declared: Declared, item: ProfileSetting) -> int | None:
    """The largest batch of one rank. Data ranks may get more than their share of the declared requests for a while, so their
    graph is as wide as the setting's ``running_limit_at_most`` allows."""
    limit = running_limit(context, declared)
    return None if limit is None else min(limit, *graph_bounds(item), limit)


def graph_bounds(item: ProfileSetting) -> list[int]:
    """Batches up to which the setting allows a wider decode graph; empty: any."""
    return [need["running_limit_at_most"] for need in item.needs if isinstance(need, dict)]
