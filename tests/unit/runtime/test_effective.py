"""Planned against effective, with what /server_info of SGLang 0.5.23 answers."""

from __future__ import annotations

from typing import Any

import pytest

from vlm_api.plan import Setting, Source
from vlm_runtime.effective import compare, engine_version

INFO: dict[str, Any] = {
    "version": "0.5.23",
    "api_key": "sk-1",
    "attn_dp_size": 1,
    "page_size": 64,
    "mm_feature_transport": "cuda_ipc",
    "radix_eviction_policy": "lru",
    "mem_fraction_static": 0.7722000000000001,
    "max_running_requests": 400,
    "max_total_tokens": 100000,
    "max_total_num_tokens": 99968,
    "cuda_graph_max_bs_decode": None,
    "cuda_graph_config": {
        "decode": {"backend": "full", "max_bs": 400},
        "prefill": {"backend": "disabled", "max_bs": 8192},
    },
    "mm_process_config": {"image": {"size": {"longest_edge": 1048576}}},
    "enable_metrics": True,
    "internal_states": [
        {
            "effective_max_running_requests_per_dp": 317,
            "disable_chunked_prefix_cache": True,
            "env_vars": {"SGLANG_VLM_CACHE_SIZE_MB": "0", "SGLANG_EXPOSE_OWN_ENV_VARS": "1"},
        }
    ],
}


def one(name: str, planned: Any, info: dict[str, Any] | None = None, applied: bool = True) -> tuple[Any, bool] | None:
    """(effective, agrees), or None where it is left out."""
    setting = Setting(name=name, value=planned, applied=applied, source=Source.USER, rule="r", reason="r")
    found = compare([setting], INFO if info is None else info)
    return (found[0].effective, found[0].agrees) if found else None


@pytest.mark.parametrize(
    ("name", "planned", "effective", "agrees"),
    [
        ("mm_feature_transport", "cuda_ipc", "cuda_ipc", True),
        ("radix_eviction_policy", "priority", "lru", False),
        ("mem_fraction_static", 0.7722, 0.7722000000000001, True),
        ("enable_metrics", True, True, True),
        ("mm_process_config", '{"image": {"size": {"longest_edge": 1048576}}}', INFO["mm_process_config"], True),
        ("mm_process_config", {"image": {"size": {"longest_edge": 65536}}}, INFO["mm_process_config"], False),
        ("SGLANG_VLM_CACHE_SIZE_MB", 0, "0", True),
        ("SGLANG_VLM_CACHE_SIZE_MB", "100", "0", False),
        ("SGLANG_EXPOSE_OWN_ENV_VARS", "1", "1", True),
        ("cuda_graph_max_bs_decode", 400, 400, True),
        ("cuda_graph_max_bs_decode", 512, 400, False),
        ("disable_chunked_prefix_cache", False, True, False),
    ],
)
def test_a_setting_is_shown_as_the_engine_says_it(name: str, planned: Any, effective: Any, agrees: bool) -> None:
    assert one(name, planned) == (effective, agrees)


def test_fewer_running_requests_than_planned_are_shown_although_the_engine_repeats_the_wish() -> None:
    assert one("max_running_requests", 400) == (317, False)


def test_running_requests_are_added_up_over_data_parallel_attention() -> None:
    assert one("max_running_requests", 1268, INFO | {"attn_dp_size": 4}) == (1268, True)


def test_tokens_are_rounded_down_to_pages_and_that_is_no_difference() -> None:
    assert one("max_total_tokens", 100000) == (99968, True)
    assert one("max_total_tokens", 200000) == (99968, False)


def test_what_the_engine_does_not_say_is_left_out_and_not_called_a_difference() -> None:
    assert one("SGLANG_MM_FEATURE_CACHE_MB", 3072) is None
    assert one("prefill_decode_interval", 22) is None
    assert one("SGLANG_VLM_CACHE_SIZE_MB", 0, {"internal_states": [{}]}) is None
    assert one("max_running_requests", 8, {}) is None


def test_a_setting_that_was_not_applied_is_not_compared() -> None:
    assert one("radix_eviction_policy", None, applied=False) is None


def test_a_key_is_never_repeated() -> None:
    assert one("api_key", "sk-1") is None


def test_the_older_field_of_the_decode_graph_is_read_too() -> None:
    assert one("cuda_graph_max_bs_decode", 256, {"cuda_graph_max_bs": 256}) == (256, True)


def test_the_engine_says_its_version() -> None:
    assert engine_version(INFO) == "0.5.23"
    assert engine_version({}) is None
