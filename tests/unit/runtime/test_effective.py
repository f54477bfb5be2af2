"""Planned and effective settings, with answers of SGLang's /server_info."""

from __future__ import annotations

from typing import Any

import pytest

from vlm_api.plan import Setting, Source
from vlm_api.report import EffectiveSetting, EngineDefault, FeaturePool
from vlm_runtime.redact import Redactor
from vlm_runtime.sglang.effective import Comparison, compare

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


def applied(name: str, planned: Any) -> Setting:
    return Setting(name=name, value=planned, applied=True, source=Source.USER, rule="r", reason="r")


def left(name: str, expected: Any = None) -> Setting:
    return Setting(name=name, applied=False, source=Source.ENGINE, rule="r", reason="r", expected=expected)


def one(name: str, planned: Any, info: dict[str, Any] | None = None) -> tuple[Any, bool] | None:
    """(effective, agrees), or None where the engine does not tell it."""
    found = compare([applied(name, planned)], INFO if info is None else info)
    assert len(found.settings) + len(found.not_reported) == 1
    return (found.settings[0].effective, found.settings[0].agrees) if found.settings else None


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
def test_a_setting_is_shown_as_the_engine_reports_it(name: str, planned: Any, effective: Any, agrees: bool) -> None:
    assert one(name, planned) == (effective, agrees)


@pytest.mark.parametrize(
    ("name", "planned", "effective"),
    [
        ("allowed_media_domains", ["Images.example.com", "a.example.com"], ["a.example.com", "images.example.com"]),
        ("tool_call_parser", "qwen25", "qwen"),
        ("tool_call_parser", "glm45", "glm"),
        ("speculative_algorithm", "NEXTN", "EAGLE"),
        ("speculative_algorithm", "eagle3", "EAGLE3"),
        ("quantization", "unquant", None),
        ("attention_backend", "compressed", "dsv4"),
        ("prefill_attention_backend", "tokenspeed_mla", "trtllm_mla"),
        ("disaggregation_transfer_backend", "mooncake_tcp", "mooncake"),
    ],
)
def test_a_renamed_value_is_not_a_mismatch(name: str, planned: Any, effective: Any) -> None:
    assert one(name, planned, INFO | {name: effective}) == (effective, True)


@pytest.mark.parametrize(
    ("name", "planned", "effective"),
    [
        ("allowed_media_domains", ["a.example.com", "b.example.com"], ["a.example.com"]),
        ("tool_call_parser", "qwen25", "glm"),
        ("speculative_algorithm", "NEXTN", "EAGLE3"),
        ("speculative_algorithm", "NEXTN", None),
        ("quantization", "fp8", None),
        ("cuda_graph_config", {"decode": {"max_bs": 512}}, INFO["cuda_graph_config"]),
        ("cuda_graph_config", {"decode": {"no_such_key": 1}}, INFO["cuda_graph_config"]),
    ],
)
def test_a_different_value_is_a_mismatch(name: str, planned: Any, effective: Any) -> None:
    assert one(name, planned, INFO | {name: effective}) == (effective, False)


@pytest.mark.parametrize("planned", ['{"decode": {"max_bs": 400}}', {"decode": {"max_bs": 400}}])
def test_a_partial_configuration_is_compared_with_that_part(planned: Any) -> None:
    assert one("cuda_graph_config", planned) == (INFO["cuda_graph_config"], True)


@pytest.mark.parametrize(
    ("flag", "field", "value", "agrees"),
    [
        ("enable_flashinfer_allreduce_fusion", "flashinfer_allreduce_fusion_backend", "auto", True),
        ("enable_flashinfer_allreduce_fusion", "flashinfer_allreduce_fusion_backend", None, False),
        ("keep_mm_feature_on_device", "mm_feature_transport", "cuda_ipc", True),
        ("keep_mm_feature_on_device", "mm_feature_transport", "cpu", False),
    ],
)
def test_an_older_flag_is_read_from_the_newer_field(flag: str, field: str, value: str | None, agrees: bool) -> None:
    assert one(flag, True, INFO | {flag: False, field: value}) == (False, agrees)
    assert one(flag, False, INFO | {flag: False, field: value}) == (False, True)


def test_without_the_newer_field_an_older_flag_is_read_directly() -> None:
    info = {name: value for name, value in INFO.items() if name != "mm_feature_transport"}
    assert one("keep_mm_feature_on_device", True, info | {"keep_mm_feature_on_device": True}) == (True, True)


def test_the_conservativeness_of_attention_groups_matches_the_plan() -> None:
    told = {"schedule_conservativeness": 0.15}
    assert one("schedule_conservativeness", 0.5, INFO | {"attn_dp_size": 4} | told) == (0.15, True)
    assert one("schedule_conservativeness", 0.5, INFO | told) == (0.15, False)


def test_fewer_running_requests_than_planned_are_a_mismatch() -> None:
    assert one("max_running_requests", 400) == (317, False)


def test_running_requests_are_added_up_over_data_parallel_attention() -> None:
    assert one("max_running_requests", 1268, INFO | {"attn_dp_size": 4}) == (1268, True)


def test_before_0_5_22_dp_size_divides_requests_with_dp_attention() -> None:
    older = {name: value for name, value in INFO.items() if name != "attn_dp_size"} | {"chunked_prefill_size": 2048}
    grouped = older | {"enable_dp_attention": True, "dp_size": 4}
    assert one("max_running_requests", 1268, grouped) == (1268, True)
    assert one("chunked_prefill_size", 8192, grouped) == (2048, True)
    copies = older | {"enable_dp_attention": False, "dp_size": 4}  # each has the whole number
    assert one("max_running_requests", 317, copies) == (317, True)
    assert one("chunked_prefill_size", 8192, copies) == (2048, False)


def test_a_value_divided_among_ranks_matches_even_without_its_remainder() -> None:
    ranks = INFO | {"attn_dp_size": 4, "chunked_prefill_size": 2048, "max_mamba_cache_size": 25}
    assert one("max_mamba_cache_size", 102, ranks) == (25, True)
    assert one("max_running_requests", 1270, ranks) == (1268, True)
    assert one("max_running_requests", 1272, ranks) == (1268, False)
    assert one("chunked_prefill_size", 8192, ranks) == (2048, True)
    assert one("chunked_prefill_size", 4096, ranks) == (2048, False)
    assert one("chunked_prefill_size", -1, {"chunked_prefill_size": -1}) == (-1, True)


def test_auto_matches_any_choice_of_the_engine() -> None:
    assert one("kv_cache_dtype", "auto", {"kv_cache_dtype": "bfloat16"}) == ("bfloat16", True)


def test_tokens_rounded_down_to_pages_match() -> None:
    assert one("max_total_tokens", 100000) == (99968, True)
    assert one("max_total_tokens", 200000) == (99968, False)


def test_an_unreported_setting_is_named_and_not_a_mismatch() -> None:
    planned = [
        applied("TORCHDYNAMO_DISABLE", "1"),
        applied("enable_metrics", True),
        applied("prefill_decode_interval", 22),
    ]
    found = compare(planned, INFO)
    assert [s.name for s in found.settings] == ["enable_metrics"]
    assert found.not_reported == ["TORCHDYNAMO_DISABLE", "prefill_decode_interval"]
    assert one("SGLANG_VLM_CACHE_SIZE_MB", 0, {"internal_states": [{}]}) is None
    assert one("max_running_requests", 8, {}) is None


def test_an_empty_answer_reports_no_setting() -> None:
    assert compare([applied("a", 1), left("b", 2)], {}) == Comparison(None, [], ["a"], [])
    assert compare([applied("a", 1)], {"internal_states": "none", "version": 5}).not_reported == ["a"]


def test_an_engine_default_is_shown_beside_the_expected_one() -> None:
    settings = [left("radix_eviction_policy", "priority"), left("page_size"), left("prefill_decode_interval", 0)]
    found = compare([*settings, left("mm_feature_transport", "cuda_ipc")], INFO)
    assert (found.settings, found.not_reported) == ([], [])
    assert found.engine_defaults == [
        EngineDefault(name="radix_eviction_policy", expected="priority", effective="lru", agrees=False),
        EngineDefault(name="page_size", expected=None, effective=64, agrees=True),
        EngineDefault(name="mm_feature_transport", expected="cuda_ipc", effective="cuda_ipc", agrees=True),
    ]


def test_an_unset_field_does_not_contradict_the_expectation() -> None:
    found = compare(
        [left("cuda_graph_bs", [1]), left("mm_preprocess_cache_size_mb", 0)],
        INFO | {"mm_preprocess_cache_size_mb": None},
    )
    assert found.engine_defaults == [
        EngineDefault(name="mm_preprocess_cache_size_mb", expected=0, effective=None, agrees=True)
    ]
    # Where a value was planned, an unset field is no agreement.
    assert one("mm_preprocess_cache_size_mb", 0, {"mm_preprocess_cache_size_mb": None}) == (None, False)


def test_the_scheduler_that_differs_is_shown() -> None:
    states = [{"env_vars": {"SGLANG_VLM_CACHE_SIZE_MB": size}} for size in ("0", "0", "100")]
    assert one("SGLANG_VLM_CACHE_SIZE_MB", 0, {"internal_states": states}) == ("100", False)
    assert one("SGLANG_VLM_CACHE_SIZE_MB", 0, {"internal_states": states[:2]}) == ("0", True)


MIB = 1 << 20
VARIABLE_SAYS_3072 = {"internal_states": [{"env_vars": {"SGLANG_MM_FEATURE_CACHE_MB": "3072"}}]}


def test_the_pools_true_size_counts_not_the_variable() -> None:
    def told(pool: FeaturePool | None) -> EffectiveSetting:
        (found,) = compare([applied("SGLANG_MM_FEATURE_CACHE_MB", 3072)], VARIABLE_SAYS_3072, pool).settings
        return found

    # An import that came too early: the default of 1 GiB, while every variable says 3 GiB.
    frozen = FeaturePool(planned_bytes=3072 * MIB, size_bytes=1024 * MIB)
    assert (told(frozen).effective, told(frozen).agrees) == (1024, False)
    # Without the control words of one tensor-parallel rank, as the plugin's metric says it.
    assert told(FeaturePool(size_bytes=3072 * MIB - 32 * 1024)).agrees
    assert told(FeaturePool(planned_bytes=3072 * MIB)).effective == "3072"
    assert told(None).agrees


def test_a_key_is_never_reported() -> None:
    found = compare([applied("api_key", "sk-1"), applied("SGLANG_SOME_TOKEN", "t-1"), left("admin_api_key")], INFO)
    assert (found.settings, found.not_reported, found.engine_defaults) == ([], ["api_key", "SGLANG_SOME_TOKEN"], [])


def test_secrets_in_the_engines_answer_are_masked() -> None:
    secret = "s3cr3t-in-a-url"
    info = {
        "file_storage_path": f"https://user:{secret}@host/",
        "served": {"list": [f"a {secret}"]},
        "chat_template": f"--api-key {secret}",
    }
    planned = [applied("file_storage_path", "x"), left("served", 1), applied("chat_template", f"{secret}")]
    found = compare(planned, info, None, Redactor([secret]))
    assert len(found.settings) == 2
    assert len(found.engine_defaults) == 1
    assert secret not in repr(found)
    assert "https://user:[redacted]@host/" in repr(found)


def test_the_older_field_of_the_decode_graph_is_read_too() -> None:
    assert one("cuda_graph_max_bs_decode", 256, {"cuda_graph_max_bs": 256}) == (256, True)


def test_the_engine_reports_its_version() -> None:
    assert compare([], INFO).engine_version == "0.5.23"
    assert compare([], {}).engine_version is None
