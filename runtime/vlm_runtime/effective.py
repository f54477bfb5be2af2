"""Planned settings beside what the running engine says it uses. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_api.plan import Setting
from vlm_api.report import EffectiveSetting

_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_SECRET: Final = re.compile(r"(^|_)(key|token|secret|password)$", re.IGNORECASE)
_UNKNOWN: Final = object()


def compare(settings: Sequence[Setting], server_info: Mapping[str, Any]) -> list[EffectiveSetting]:
    """Each applied setting with what ``/server_info`` says of it; left out where the engine does not say.

    ``server_info``: the answer of SGLang, whose ``internal_states[0]`` holds what the scheduler really uses.
    """
    compared: list[EffectiveSetting] = []
    for setting in settings:
        if not setting.applied or _SECRET.search(setting.name):
            continue
        effective = _effective(setting.name, server_info)
        if effective is not _UNKNOWN:
            agrees = _agrees(setting.name, setting.value, effective, server_info)
            compared.append(
                EffectiveSetting(name=setting.name, planned=setting.value, effective=effective, agrees=agrees)
            )
    return compared


def engine_version(server_info: Mapping[str, Any]) -> str | None:
    """The version that the engine itself says."""
    version = server_info.get("version")
    return version if isinstance(version, str) else None


def _effective(name: str, info: Mapping[str, Any]) -> Any:
    states = info.get("internal_states")
    scheduler: Mapping[str, Any] = states[0] if isinstance(states, list) and states else {}
    if _VARIABLE.fullmatch(name):
        return (scheduler.get("env_vars") or {}).get(name, _UNKNOWN)
    if name == "cuda_graph_max_bs_decode":
        return _decode_graph_limit(info)
    if name == "max_running_requests":
        return _running_requests(info, scheduler)
    if name == "max_total_tokens" and "max_total_num_tokens" in info:
        return info["max_total_num_tokens"]
    return scheduler.get(name, info.get(name, _UNKNOWN))


def _decode_graph_limit(info: Mapping[str, Any]) -> Any:
    """The largest batch that is captured: resolved in a structure of its own from 0.5.14 on, a plain field before."""
    config = info.get("cuda_graph_config")
    if isinstance(config, str):
        config = _json(config)
    if isinstance(config, Mapping) and isinstance(config.get("decode"), Mapping):
        return config["decode"].get("max_bs", _UNKNOWN)
    return info.get("cuda_graph_max_bs", _UNKNOWN)


def _running_requests(info: Mapping[str, Any], scheduler: Mapping[str, Any]) -> Any:
    """What the KV cache leaves of the wish. The scheduler tells it for one rank of data-parallel attention."""
    per_rank = scheduler.get("effective_max_running_requests_per_dp")
    if not isinstance(per_rank, int):
        return info.get("max_running_requests", _UNKNOWN)
    ranks = info.get("attn_dp_size") or 1
    return per_rank * ranks


def _agrees(name: str, planned: Any, effective: Any, info: Mapping[str, Any]) -> bool:
    if name == "max_total_tokens" and isinstance(planned, int) and isinstance(effective, int):
        # The engine rounds down to whole pages.
        return 0 <= planned - effective < (info.get("page_size") or 1)
    if isinstance(effective, float) and isinstance(planned, (int, float)):
        return abs(planned - effective) < 1e-6
    return bool(_plain(planned) == _plain(effective))


def _plain(value: Any) -> Any:
    """One spelling: variables are strings everywhere, and JSON may come as text."""
    if isinstance(value, str):
        parsed = _json(value.lower() if value in ("True", "False") else value)
        return value if parsed is None else parsed
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
