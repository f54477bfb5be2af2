"""Compares planned settings with those that the running engine reports. Pure."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vlm_api.plan import Setting
from vlm_api.report import EffectiveSetting, EngineDefault, FeaturePool
from vlm_runtime.sglang.aliases import OLDER_FLAGS, are_equivalent

POOL_SETTING: Final = "SGLANG_MM_FEATURE_CACHE_MB"

_MIB: Final = 1 << 20
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_SECRET: Final = re.compile(r"(^|_)(key|token|secret|password)$", re.IGNORECASE)
_UNKNOWN: Final = object()
# With data-parallel attention, the engine divides these among its ranks,
_DIVIDED_BY_RANKS: Final = frozenset({"max_running_requests", "chunked_prefill_size", "max_mamba_cache_size"})
# and multiplies schedule_conservativeness by this.
_CONSERVATIVENESS_FACTOR: Final = 0.3


@dataclass(frozen=True)
class Comparison:
    """The plan beside the engine's report. Every planned setting is in at most one of the lists."""

    engine_version: str | None
    settings: list[EffectiveSetting]
    """Applied settings that the engine reports."""
    not_reported: list[str]
    """Names of applied settings that it does not report. Keys and tokens are always among them."""
    engine_defaults: list[EngineDefault]
    """Settings that were left to the engine, if it reports them."""


def compare(
    settings: Sequence[Setting],
    server_info: Mapping[str, Any],
    pool: FeaturePool | None = None,
    redact: Callable[[str], str] = str,
) -> Comparison:
    """Each planned setting with what ``/server_info`` reports.

    ``server_info``: SGLang's answer; its ``internal_states`` hold what each scheduler really uses. ``pool``: the observed
    feature pool. Its true size counts, not the variable, which SGLang reads twice. ``redact`` masks secrets in texts.
    """
    reported: list[EffectiveSetting] = []
    not_reported: list[str] = []
    defaults: list[EngineDefault] = []
    for setting in settings:
        effective = _UNKNOWN if _SECRET.search(setting.name) else _value_of(setting, server_info, pool)
        shown = _without_secrets(effective, redact)
        if setting.applied and effective is _UNKNOWN:
            not_reported.append(setting.name)
        elif setting.applied:
            agrees = _agrees(setting.name, setting.value, effective, server_info)
            planned = _without_secrets(setting.value, redact)
            reported.append(EffectiveSetting(name=setting.name, planned=planned, effective=shown, agrees=agrees))
        elif effective is not _UNKNOWN:
            # A field that stays unset is decided at its use: then the engine does not report the value.
            is_undecided = setting.expected is None or effective is None
            agrees = is_undecided or _agrees(setting.name, setting.expected, effective, server_info)
            defaults.append(EngineDefault(name=setting.name, expected=setting.expected, effective=shown, agrees=agrees))
    return Comparison(engine_version(server_info), reported, not_reported, defaults)


def engine_version(server_info: Mapping[str, Any]) -> str | None:
    """The version that the engine reports."""
    version = server_info.get("version")
    return version if isinstance(version, str) else None


def _value_of(setting: Setting, info: Mapping[str, Any], pool: FeaturePool | None) -> Any:
    """What the engine uses; with several schedulers, the first value that differs from the plan, else the first."""
    if setting.name == POOL_SETTING and pool is not None and pool.size_bytes is not None:
        # The pool's own metric leaves out its control data, less than 1 MiB.
        return -(-pool.size_bytes // _MIB)
    planned = setting.value if setting.applied else setting.expected
    values = list(_effective(setting.name, info))
    differing = (v for v in values if v is not _UNKNOWN and not _agrees(setting.name, planned, v, info))
    return next(differing, values[0])


def _effective(name: str, info: Mapping[str, Any]) -> Iterator[Any]:
    """What each scheduler reports for a setting; at least one value."""
    states = info.get("internal_states")
    for scheduler in states if isinstance(states, list) and states else [{}]:
        yield _of_scheduler(name, info, scheduler if isinstance(scheduler, Mapping) else {})


def _of_scheduler(name: str, info: Mapping[str, Any], scheduler: Mapping[str, Any]) -> Any:
    if _VARIABLE.fullmatch(name):
        variables = scheduler.get("env_vars")
        return variables.get(name, _UNKNOWN) if isinstance(variables, Mapping) else _UNKNOWN
    if name == "cuda_graph_max_bs_decode":
        return _decode_graph_limit(info)
    if name == "max_running_requests":
        return _running_requests(info, scheduler)
    if name == "max_total_tokens" and "max_total_num_tokens" in info:
        return info["max_total_num_tokens"]
    return scheduler.get(name, info.get(name, _UNKNOWN))


def _decode_graph_limit(info: Mapping[str, Any]) -> Any:
    """The largest batch that is captured: from 0.5.14 on in a structure of its own, a plain field before."""
    config = info.get("cuda_graph_config")
    if isinstance(config, str):
        config = _json(config)
    if isinstance(config, Mapping) and isinstance(config.get("decode"), Mapping):
        return config["decode"].get("max_bs", _UNKNOWN)
    return info.get("cuda_graph_max_bs", _UNKNOWN)


def _running_requests(info: Mapping[str, Any], scheduler: Mapping[str, Any]) -> Any:
    """The limit after the KV cache was sized. With data-parallel attention, the scheduler reports it for one rank."""
    per_rank = scheduler.get("effective_max_running_requests_per_dp")
    if not isinstance(per_rank, int):
        return info.get("max_running_requests", _UNKNOWN)
    return per_rank * _groups(info)


def _groups(info: Mapping[str, Any]) -> int:
    """Groups of ranks that requests are divided among. Reported since 0.5.22; before, it is dp_size with this flag."""
    groups = info.get("attn_dp_size", info.get("dp_size") if info.get("enable_dp_attention") else None)
    return groups if isinstance(groups, int) and groups > 0 else 1


def _agrees(name: str, planned: Any, effective: Any, info: Mapping[str, Any]) -> bool:
    if name == "max_total_tokens" and isinstance(planned, int) and isinstance(effective, int):
        # The engine rounds down to whole pages.
        return 0 <= planned - effective < (info.get("page_size") or 1)
    if name in _DIVIDED_BY_RANKS and isinstance(planned, int) and isinstance(effective, int):
        groups = _groups(info)
        share = planned // groups
        return effective in (planned, share, share * groups)
    if planned == "auto":
        return True  # any choice of the engine is what was planned
    planned, effective = _plain(planned), _plain(effective)
    if planned is True and (older := OLDER_FLAGS.get(name)):
        return effective is True or older.is_on(info.get(older.field))
    if name == "schedule_conservativeness" and isinstance(planned, int | float) and _groups(info) > 1:
        planned = planned * _CONSERVATIVENESS_FACTOR
    if isinstance(effective, float) and isinstance(planned, (int, float)):
        return abs(planned - effective) < 1e-6
    return are_equivalent(name, planned, effective)


def _plain(value: Any) -> Any:
    """One spelling: variables are always strings, and JSON may come as text."""
    if isinstance(value, str):
        parsed = _json(value.lower() if value in ("True", "False") else value)
        return value if parsed is None else parsed
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _without_secrets(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _without_secrets(item, redact) for key, item in value.items()}
    return [_without_secrets(item, redact) for item in value] if isinstance(value, list) else value
