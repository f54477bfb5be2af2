"""What each release knows, where users and rules depend on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_operator.sglang.catalogue.releases import known, newest, release, unknown_release, versions
from vlm_operator.sglang.choices.arguments import parse

# First version with a setting or variable, read in the wheels by hand.
FIRST = {
    "mm_feature_transport": "0.5.16",
    "mm_preprocess_cache_size_mb": "0.5.18",
    "allowed_media_domains": "0.5.18",
    "image_processor_backend": "0.5.18",
    "prefill_decode_interval": "0.5.19",
    "SGLANG_EXPOSE_OWN_ENV_VARS": "0.5.19",
    "prefill_decode_interval_min_bs": "0.5.23",
    "mm_processor_worker_num": "0.5.17",
    "SGLANG_USE_IPC_POOL_HANDLE_CACHE": "0.5.10",
    "radix_eviction_policy": "0.5.9",
    "SGLANG_USE_CUDA_IPC_TRANSPORT": "0.5.9",
}


@pytest.mark.parametrize("name", FIRST)
def test_a_setting_is_known_from_its_first_version_on(name):
    first = versions().index(FIRST[name])
    knows = [release(v).flag(name) is not None or release(v).has_variable(name) for v in versions()]
    assert knows == [False] * first + [True] * (len(knows) - first)


@pytest.mark.parametrize(
    ("version", "flag"),
    [
        ("0.5.9", "--cuda-graph-max-bs"),
        ("0.5.13.post1", "--cuda-graph-max-bs"),
        ("0.5.14", "--cuda-graph-max-bs-decode"),
        (newest(), "--cuda-graph-max-bs-decode"),
    ],
)
def test_the_decode_graphs_limit_has_one_name_and_each_versions_flag(version, flag):
    assert release(version).flag("cuda_graph_max_bs_decode") == flag
    assert "cuda_graph_max_bs" not in release(version).fields


@pytest.mark.parametrize(
    ("fact", "since"),
    [
        ("plugins", "0.5.11"),
        ("pool_off_kv_cache", "0.5.18"),
        ("hopper_set", "0.5.20"),
        ("answers_evicted_first", "0.5.20"),
        ("graph_within_running_limit", "0.5.22"),
    ],
)
def test_what_a_release_does_by_itself_begins_with_its_version(fact, since):
    assert [version for version in versions() if release(version).does(fact)] == list(
        versions()[versions().index(since) :]
    )
    assert unknown_release().does(fact)


@pytest.mark.parametrize(
    ("memory_mib", "tensor", "chunk", "graph"),
    [
        (15_360, 1, 2048, 8),
        (23_034, 1, 4096, 48),
        (46_068, 4, 4096, 160),
        (81_559, 1, 8192, 256),
        (143_771, 8, 8192, 512),
        (183_359, 1, 16_384, 512),
        (None, 1, 4096, 160),
    ],
)
def test_the_engine_s_defaults_by_device_memory(memory_mib, tensor, chunk, graph):
    assert unknown_release().capacity_defaults(memory_mib, tensor) == (chunk, graph)


def test_releases_before_0_5_20_took_less_on_devices_of_24_gib():
    older = release("0.5.19")
    assert older.capacity_defaults(23_034, 1) == (2048, 24)
    assert older.capacity_defaults(23_034, 4) == (2048, 80)
    assert older.capacity_defaults(46_068, 1) == unknown_release().capacity_defaults(46_068, 1)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("prefil_decode_interval", "prefill_decode_interval"),
        ("max-running-requests", "max_running_requests"),
        ("SGLANG_VLM_CACH_SIZE_MB", "SGLANG_VLM_CACHE_SIZE_MB"),
        ("--mm-feature-transprot", "--mm-feature-transport"),
        ("something_else_entirely", None),
    ],
)
def test_a_slip_of_the_pen_is_recognised(written, meant):
    assert release(newest()).suggest(written) == meant


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("prefill_decode_interval", 22, ["--prefill-decode-interval", "22"]),
        ("mem_fraction_static", 0.85, ["--mem-fraction-static", "0.85"]),
        ("mm_feature_transport", "cuda_ipc", ["--mm-feature-transport", "cuda_ipc"]),
        ("log_requests", True, ["--log-requests"]),
        ("log_requests", False, []),
        ("mm_enable_dp_encoder", True, ["--mm-enable-dp-encoder"]),
        ("mm_enable_dp_encoder", False, ["--no-mm-enable-dp-encoder"]),
        ("limit_mm_data_per_request", {"image": 4}, ["--limit-mm-data-per-request", '{"image":4}']),
        ("allowed_media_domains", ["a.example", "b.example"], ["--allowed-media-domains", "a.example", "b.example"]),
        ("chunked_prefill_size", -1, ["--chunked-prefill-size", "-1"]),
        ("chat_template", "-odd", ["--chat-template=-odd"]),
        ("fp8_gemm_runner_backend", "auto", ["--fp8-gemm-backend", "auto"]),
    ],
)
def test_a_setting_becomes_the_words_that_the_engine_reads(setting, value, words):
    assert release(newest()).render_flag(setting, value) == words


VALUES = {
    "int": st.integers(1, 60_000),
    "size": st.integers(1, 60_000),
    "float": st.floats(0.01, 0.99),
    "str": st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=20),
    "json": st.dictionaries(st.sampled_from(["image", "video"]), st.integers(0, 9), min_size=1),
    "bool": st.booleans(),
}


@given(st.data(), st.sampled_from(versions()))
def test_what_is_written_on_the_command_line_is_read_back_the_same(data, version):
    engine = release(version)
    names = [name for name in sorted(engine.fields) if engine.flag(name) and not engine.fields[name].without_effect]
    field = engine.fields[data.draw(st.sampled_from(names))]
    one = st.sampled_from(field.choices) if field.choices else VALUES[field.kind]
    if field.many in ("+", "*"):
        # A list's words are told from flags by their first character, so none of them can begin with a dash.
        one = one.filter(lambda value: not str(value).startswith("-"))
        value = data.draw(st.lists(one, min_size=1, max_size=3))
    else:
        value = data.draw(one)
    ranges = known()["ranges"].get(field.name, {})
    if "max" in ranges and field.kind == "int":
        value = min(value, ranges["max"])
    words = engine.render_flag(field.name, value)
    if value is False and not field.negative:
        assert words == []
    else:
        [argument] = parse(words, engine, "args")
        assert (argument.field, argument.value, argument.words) == (field, value, tuple(words))


def test_every_range_and_every_reserved_setting_exists_in_some_version():
    some = unknown_release()
    for section in ("ranges", "reserved"):
        assert [name for name in known()[section] if name not in some.fields and name not in some.variables] == []


def test_the_settings_of_the_operators_own_rules_are_never_reserved():
    rules = {"mm_feature_transport", "prefill_decode_interval", "max_running_requests", "host", "allowed_media_domains"}
    assert rules.isdisjoint(known()["reserved"])
