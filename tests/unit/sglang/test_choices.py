"""What users write about the engine, in all the places where they can, and what is refused with which sentence."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_api.plan import Severity
from vlm_api.spec import VLMServiceSpec
from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.catalogue.releases import newest, release, unknown_release
from vlm_operator.sglang.choices.user_choices import user_choices

NEWEST = newest()


def service(main=None, security=None, **engine):
    containers = [{"name": "sidecar", "args": ["--x"]}, {"name": "main"} | (main or {})]
    template = {"spec": {"containers": containers}}
    spec = {"model": {"uri": "hf://a/b"}, "engine": engine, "template": template, "security": security or {}}
    return VLMServiceSpec.model_validate(spec)


def choices(version=NEWEST, **said):
    return user_choices(service(**said), release(version) if version else unknown_release())


def refusal(version=NEWEST, **said):
    with pytest.raises(InvalidInput) as error:
        choices(version, **said)
    assert "\n" not in str(error.value)
    return error.value


def variable(name, value):
    return {"name": name, "value": value}


def reference(name, key="k"):
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": key}}}


# --- what is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "values"),
    [
        (["--radix-eviction-policy=lru"], {"radix_eviction_policy": "lru"}),
        (["--radix-eviction-policy", "lru"], {"radix_eviction_policy": "lru"}),
        (["--log-requests", "--host", "::"], {"log_requests": True, "host": "::"}),
        (["--no-mm-enable-dp-encoder"], {"mm_enable_dp_encoder": False}),
        (["--chunked-prefill-size", "-1"], {"chunked_prefill_size": -1}),
        (["--max-prefill-tokens", "16k"], {"max_prefill_tokens": 16_000}),
        (["--max-total-tokens=1Mi"], {"max_total_tokens": 1_048_576}),
        (["--mem-fraction-static", ".8"], {"mem_fraction_static": 0.8}),
        (["--limit-mm-data-per-request", '{"image": 2}'], {"limit_mm_data_per_request": {"image": 2}}),
        (
            ["--allowed-media-domains", "a", "b", "--log-requests"],
            {"allowed_media_domains": ["a", "b"], "log_requests": True},
        ),
        (["--cuda-graph-bs-decode", "1", "2"], {"cuda_graph_bs_decode": [1, 2]}),
        (["--chat-template=--x"], {"chat_template": "--x"}),
        (["--ep", "1"], {"ep_size": 1}),
    ],
)
def test_flags_are_read_in_every_spelling_and_passed_as_written(args, values):
    found = choices(args=args)
    assert {name: choice.value for name, choice in found.settings.items()} == values
    assert found.args == tuple(args)


def test_a_flag_is_found_where_it_stands():
    found = choices(args=["--log-requests", "--host", "::"])
    assert found.settings["host"].path == "spec.engine.args[1]"


def test_settings_keep_their_types():
    said = {"prefill_decode_interval": 10, "SGLANG_VLM_CACHE_SIZE_MB": 100, "mm_process_config": {"image": {}}}
    found = choices(settings=said)
    assert {name: choice.value for name, choice in found.settings.items()} == said
    assert found.settings["prefill_decode_interval"].path == "spec.engine.settings.prefill_decode_interval"
    assert (found.args, dict(found.env)) == ((), {})


def test_a_variable_that_the_engine_knows_is_a_setting_with_its_type():
    found = choices(env=[variable("SGLANG_VLM_CACHE_SIZE_MB", "100"), variable("SGLANG_USE_CUDA_IPC_TRANSPORT", "0")])
    assert found.get("SGLANG_VLM_CACHE_SIZE_MB") == 100
    assert found.get("SGLANG_USE_CUDA_IPC_TRANSPORT") is False
    assert found.env == {"SGLANG_VLM_CACHE_SIZE_MB": "100", "SGLANG_USE_CUDA_IPC_TRANSPORT": "0"}


def test_a_variable_of_another_program_is_passed_and_is_no_setting():
    found = choices(env=[variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")])
    assert found.env == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert (found.settings, found.findings) == ({}, ())


def test_what_a_reference_holds_is_unknown_but_it_is_known_to_be_set():
    found = choices(env=[reference("HF_TOKEN"), variable("SGLANG_CACHE_DIR", "$(HOME)/cache")])
    assert found.referenced_env == {"HF_TOKEN", "SGLANG_CACHE_DIR"}
    assert (dict(found.env), found.settings) == ({}, {})


def test_the_templates_main_container_has_the_last_word_on_the_command_line():
    main = {"args": ["--log-requests"], "env": [variable("SGLANG_VLM_CACHE_SIZE_MB", "7")]}
    found = choices(main=main, args=["--host", "::"])
    assert found.args == ("--host", "::", "--log-requests")
    assert found.settings["log_requests"].path.startswith("spec.template")
    assert found.settings["SGLANG_VLM_CACHE_SIZE_MB"].value == 7


@pytest.mark.parametrize("name", ["cuda_graph_max_bs", "cuda_graph_max_bs_decode"])
@pytest.mark.parametrize("version", ["0.5.12.post1", "0.5.16"])
def test_the_decode_graphs_limit_has_one_name_whatever_the_user_calls_it(version, name):
    assert choices(version, settings={name: 8}).get("cuda_graph_max_bs_decode") == 8
    assert choices(version, args=["--cuda-graph-max-bs", "8"]).get("cuda_graph_max_bs_decode") == 8


# --- said twice ---------------------------------------------------------------------------------------------------

VLM_CACHE = "SGLANG_VLM_CACHE_SIZE_MB"


@pytest.mark.parametrize(
    ("said", "places"),
    [
        (
            {"args": ["--page-size", "1"], "settings": {"page_size": 2}},
            ["spec.engine.settings.page_size", "spec.engine.args[0]"],
        ),
        ({"args": ["--page-size", "1", "--page-size=2"]}, ["spec.engine.args[2]", "spec.engine.args[0]"]),
        (
            {"env": [variable(VLM_CACHE, "1")], "settings": {VLM_CACHE: 2}},
            ["spec.engine.settings", "spec.engine.env[0]"],
        ),
        ({"main": {"env": [variable("A", "1"), variable("A", "2")]}}, [".env[1]", ".env[0]"]),
        ({"main": {"env": [variable("A", "1")]}, "env": [variable("A", "2")]}, ["spec.engine.env[0]", "spec.template"]),
        (
            {"main": {"args": ["--page-size", "1"]}, "settings": {"page_size": 2}},
            ["spec.engine.settings", "spec.template"],
        ),
        ({"main": {"env": [reference("A")]}, "env": [reference("A", "b")]}, ["spec.engine.env[0]", "spec.template"]),
        ({"main": {"env": [reference("A")]}, "env": [variable("A", "1")]}, ["spec.engine.env[0]", "spec.template"]),
        ({"env": [reference(VLM_CACHE)], "settings": {VLM_CACHE: 2}}, ["spec.engine.settings", "spec.engine.env[0]"]),
        (
            {"security": {"allowedMediaDomains": ["a"]}, "settings": {"allowed_media_domains": ["b"]}},
            ["spec.engine.settings.allowed_media_domains", "spec.security.allowedMediaDomains"],
        ),
    ],
)
def test_the_same_thing_said_twice_with_different_values_is_refused_naming_both_places(said, places):
    message = str(refusal(**said))
    assert all(place in message for place in places)


def test_the_same_thing_said_twice_with_the_same_value_is_passed_once():
    said = {
        "args": ["--page-size", "1", "--page-size=1"],
        "settings": {"page_size": 1},
        "main": {"args": ["--page-size=1"]},
    }
    found = choices(**said)
    assert found.args == ("--page-size=1",)
    assert found.settings["page_size"].path.startswith("spec.template")


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"prefil_decode_interval": 10}, "did you mean prefill_decode_interval?"),
        ({"keep_mm_feature_on_device": True}, "0.5.20 was the last version with it"),
        ({"cuda_graph_max_bs": 8}, "did you mean cuda_graph_max_bs_decode?"),
        ({"NCCL_DEBUG": "INFO"}, "spec.engine.env"),
        ({"mem_fraction_static": 1.5}, "must be above 0 and below 1, not 1.5"),
        ({"mem_fraction_static": 0}, "must be above 0 and below 1"),
        ({"max_running_requests": 0}, "must be at least 1"),
        ({"chunked_prefill_size": 0}, "must be at least 1, or -1"),
        ({"prefill_decode_interval": -1}, "must be at least 0"),
        ({"nccl_port": 70000}, "at most 65535"),
        ({"SGLANG_MM_FEATURE_CACHE_MB": 0}, "must be at least 1"),
        ({"prefill_decode_interval": "10"}, "remove the quotes"),
        ({"prefill_decode_interval": 1.5}, "must be a whole number"),
        ({"prefill_decode_interval": True}, "must be a whole number"),
        ({"prefill_decode_interval": None}, "has no value"),
        ({"kv_cache_dtype": 8}, "put it into quotes"),
        ({"log_requests": "yes"}, "must be true or false"),
        ({"enable_multimodal": False}, "can only be true"),
        ({"allowed_media_domains": "a"}, "must be a list"),
        ({"allowed_media_domains": []}, "at least one entry"),
        ({"mm_process_config": "{"}, "must be a JSON object"),
        ({"mm_feature_transport": "cuda"}, "must be one of cpu, cuda_ipc, cuda_vmm"),
    ],
)
def test_a_setting_that_cannot_be_right_is_refused_with_its_name_and_what_to_do(settings, says):
    [name] = settings
    error = refusal(settings=settings)
    assert error.path == f"spec.engine.settings.{name}"
    assert name in error.message
    assert says in error.message


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--keep-mm-feature-on-device"], "0.5.20 was the last version with it"),
        (["--cuda-graph-max-bs", "8"], "use --cuda-graph-max-bs-decode"),
        (["--max-running-request", "5"], "--max-running-requests: write the flag in full"),
        (["--pp", "2"], "short for --pp-async-batch-depth, --pp-max-micro-batch-size, --pp-size"),
        (["--tp", "2"], "spec.parallelism.tensor"),
        (["--mm-feature-transprot", "cpu"], "did you mean --mm-feature-transport?"),
        (["--no-such-thing-at-all"], "has no flag"),
        (["word"], "does not belong to a flag"),
        (["--log-requests", "yes"], "does not belong to a flag"),
        (["-h"], "does not belong to a flag"),
        (["--"], "does not belong to a flag"),
        (["--log-requests=1"], "takes no value"),
        (["--page-size"], "needs a value"),
        (["--allowed-media-domains"], "at least one value"),
        (["--page-size", "many"], "must be a whole number"),
        (["--mem-fraction-static", "nan"], "must be a number"),
        (["--chunked-prefill-size", "0"], "must be at least 1, or -1"),
    ],
)
def test_a_flag_that_the_engine_would_refuse_or_guess_at_is_refused(args, says):
    error = refusal(args=args)
    assert error.path.startswith("spec.engine.args[")
    assert says in error.message


@pytest.mark.parametrize(
    ("version", "args", "says"),
    [
        ("0.5.16", ["--prefill-decode-interval", "10"], "came with 0.5.19"),
        ("0.5.18", ["--enable-expert-distribution-metrics"], "refuses"),
    ],
)
def test_a_flag_of_another_version_is_refused_with_the_version_that_has_it(version, args, says):
    assert says in refusal(version, args=args).message


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model_path", "spec.model.uri"),
        ("revision", "spec.model.revision"),
        ("served_model_name", "spec.model.name"),
        ("port", "port 8000"),
        ("device", "spec.hardware.device"),
        ("tp_size", "spec.parallelism.tensor"),
        ("pp_size", "spec.parallelism.pipeline"),
        ("dp_size", "spec.parallelism.data"),
        ("nnodes", "spec.multinode.nodeCount"),
        ("node_rank", "remove it"),
        ("dist_init_addr", "remove it"),
        ("api_key", "spec.security.apiKeySecretRef"),
        ("admin_api_key", "spec.security.apiKeySecretRef"),
    ],
)
def test_what_the_service_says_elsewhere_is_refused_with_the_field_to_use(name, says):
    value = {"model_path": "x"}.get(name, "1")
    flag = "--" + name.replace("_", "-")
    for error in (refusal(args=[flag, value]), refusal(args=[f"{flag}={value}"]), refusal(settings={name: value})):
        assert says in error.message
        assert name in error.message.replace("-", "_")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--tensor-parallel-size", "2"], "spec.parallelism.tensor"),
        (["--model", "x"], "spec.model.uri"),
        (["--config", "x.yaml"], "spec.engine.settings"),
        (["--ssl-keyfile-password", "x"], "would be visible in the plan"),
    ],
)
def test_aliases_and_files_hide_nothing(args, says):
    assert says in refusal(args=args).message


@pytest.mark.parametrize(
    "name",
    [
        *["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "OPENAI_API_KEY", "EXA_API_KEY", "MY_KEY"],
        *["CLIENT_SECRET_V2", "DB_PASS", "GITHUB_PAT", "DB_PASSWD", "MYSQL_PWD", "PGPASSWORD", "AWS_CREDENTIAL_JSON"],
    ],
)
def test_a_secret_in_clear_is_refused_and_never_repeated(name):
    for said in ({"env": [variable(name, "hunter2")]}, {"main": {"env": [variable(name, "hunter2")]}}):
        error = refusal(**said)
        assert "valueFrom.secretKeyRef" in error.message
        assert name in error.message
        assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://me:hunter2@proxy:3128"),
        ("http_proxy", "me:hunter2@proxy:3128"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic hunter2"),
        ("STORE", '{"endpoint": "s3", "secretAccessKey": "hunter2"}'),
    ],
)
def test_a_secret_inside_a_variable_is_refused(name, value):
    for said in ({"env": [variable(name, value)]}, {"main": {"env": [variable(name, value)]}}):
        error = refusal(**said)
        assert f"name {name} and valueFrom.secretKeyRef" in error.message
        assert "hunter2" not in str(error)
    assert not choices(env=[variable("PW", "x"), variable(name, "http://me:$(PW)@proxy")]).env.get(name)


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("HF_TOKEN", "hunter2"), ("https_proxy", "me:hunter2@proxy:3128"), ("URL", "redis://:hunter2@db")],
)
def test_a_secret_in_another_container_is_refused(kind, name, value):
    harmless = [
        variable("A", "b"),
        variable("MY_KEY", "$(A)"),
        reference("MY_TOKEN"),
        {"$patch": "delete", "name": "DB_PASS"},
    ]
    for env, refused in ((harmless, False), ([variable("A", "b"), variable(name, value)], True)):
        said = service().model_dump(by_alias=True, exclude_none=True)
        said["template"] = {"spec": {kind: [{"name": "helper", "env": env}]}}
        spec = VLMServiceSpec.model_validate(said)
        if not refused:
            user_choices(spec, release(newest()))
            continue
        with pytest.raises(InvalidInput, match=r"valueFrom.secretKeyRef") as error:
            user_choices(spec, release(newest()))
        assert error.value.path == f"spec.template.spec.{kind}[name=helper].env[1]"
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("json_model_override_args", {"a": {"hf_token": "hunter2"}}),
        ("model_loader_extra_config", {"token": "hunter2"}),
        ("hicache_storage_backend_extra_config", {"stores": [{"access_key": "hunter2"}]}),
        ("hicache_storage_backend_extra_config", {"headers": {"Authorization": "hunter2"}}),
        ("mm_process_config", {"image": {"api-key": "hunter2"}}),
        ("extra_metric_labels", {"from": "https://me:hunter2@host"}),
        ("tool_server", "http://me:hunter2@tools"),
        ("sidecar_args", ["--admin-token=hunter2"]),
        ("sidecar_args", ["--admin-token", "hunter2"]),
    ],
)
def test_a_secret_inside_a_setting_is_refused_in_every_place(name, value):
    is_json = release(newest()).fields[name].kind == "json"
    text = value if isinstance(value, str) else json.dumps(value)
    flag = "--" + name.replace("_", "-")
    for said in (
        {"settings": {name: value if is_json else text}},
        {"args": [flag, text]},
        {"args": [f"{flag}={text}"]},
        {"main": {"args": [flag, text]}},
    ):
        error = refusal(**said)
        assert "must not be in plain text" in error.message
        assert "hunter2" not in str(error)


def test_what_only_resembles_a_secret_inside_a_setting_is_passed():
    harmless = {
        "json_model_override_args": '{"eos_token": "<|im_end|>", "pad_token": "[PAD]", "max_token": 5, "token_file": "/t"}',
        "default_chat_template_kwargs": {"system": "Use basic words. Ask a@b.example: they know."},
        "bucket_time_to_first_token": [0.1, 0.2],
        "tool_server": "http://me@tools",
    }
    assert choices(settings=harmless).settings.keys() == harmless.keys()
    assert choices(args=["--bucket-time-to-first-token", "0.1", "0.2"]).settings


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "SGLANG_LOG_DECODE_GRAPH_KEY",
        "HF_TOKEN_PATH",
        "MONKEY",
        "KEYBOARD",
        "PWD",
        "PATH",
        "BYPASS",
        "MY_PATH",
        "CREDENTIALS_FILE",
    ],
)
def test_a_variable_whose_name_only_resembles_a_secrets_is_passed(name):
    assert choices(env=[variable(name, "1")]).env == {name: "1"}


@pytest.mark.parametrize("entry", [reference("HF_TOKEN"), variable("HF_TOKEN", "hunter2")])
@pytest.mark.parametrize("place", ["engine", "template"])
def test_the_hubs_token_from_two_places_is_refused_with_both(entry, place):
    said = {"env": [entry]} if place == "engine" else {"main": {"env": [entry]}}
    spec = service(**said).model_dump(by_alias=True, exclude_none=True)
    spec["model"]["tokenSecretRef"] = {"name": "hf", "key": "token"}
    with pytest.raises(InvalidInput) as error:
        user_choices(VLMServiceSpec.model_validate(spec), release(newest()))
    assert error.value.path.endswith("env[0]")
    assert error.value.message == "HF_TOKEN also comes from spec.model.tokenSecretRef: set it in one place"


def test_the_clients_key_from_two_places_is_refused_with_both():
    error = refusal(env=[reference("VLMSERVE_API_KEY")], security={"apiKeySecretRef": {"name": "k", "key": "k"}})
    assert error.path == "spec.engine.env[0]"
    assert error.message == "VLMSERVE_API_KEY also comes from spec.security.apiKeySecretRef: set it in one place"


def test_a_password_in_a_url_is_not_repeated_where_two_values_differ():
    here, there = "http://hunter2@proxy", "http://hunter3@proxy"
    error = refusal(args=["--otlp-traces-endpoint", here], settings={"otlp_traces_endpoint": there})
    assert "[redacted]@proxy here, but" in error.message.replace('"', "")
    assert "hunter" not in str(error)


def test_an_api_key_in_the_arguments_is_not_repeated_in_the_error():
    assert "hunter2" not in str(refusal(args=["--api-key", "hunter2"]))
    assert "hunter2" not in str(refusal(args=["--api-key=hunter2"]))
    assert "hunter2" not in str(refusal(settings={"api_key": "hunter2"}))


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ([variable("SGLANG_VLM_CACHE_SIZE_MB", "lots")], "must be a whole number"),
        ([variable("SGLANG_VLM_CACHE_SIZE_MB", "")], "must be a whole number"),
        ([variable("SGLANG_VLM_CACHE_SIZE_MB", "-1")], "must be at least 0"),
        ([variable("SGLANG_USE_CUDA_IPC_TRANSPORT", "maybe")], "must be true or false"),
        ([variable("VLMSERVE_API_KEY", "1")], "reserved for the operator"),
    ],
)
def test_a_variable_that_the_engine_would_ignore_is_refused(env, says):
    error = refusal(env=env)
    assert (error.path, says in error.message) == ("spec.engine.env[0]", True)


# --- what is pointed out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "said", "severity", "says"),
    [
        ("0.5.16", {"args": ["--cuda-graph-max-bs", "8"]}, Severity.INFO, "use --cuda-graph-max-bs-decode"),
        ("0.5.9", {"args": ["--hybrid-kvcache-ratio"]}, Severity.WARNING, "no effect"),
        (newest(), {"env": [variable("SGLANG_VLM_CACH_SIZE_MB", "1")]}, Severity.WARNING, "SGLANG_VLM_CACHE_SIZE_MB?"),
        (None, {"settings": {"prefill_decode_interval": 10}}, Severity.WARNING, "spec.engine.version"),
        (None, {"args": ["--brand-new", "5"]}, Severity.WARNING, "spec.engine.version"),
    ],
)
def test_what_works_but_should_be_known_is_a_finding(version, said, severity, says):
    [finding] = choices(version, **said).findings
    assert (finding.severity, says in finding.message) == (severity, True)
    assert finding.path.startswith("spec.engine.")


def test_a_flag_that_nobody_knows_reaches_an_engine_of_unknown_version_as_written():
    assert choices(None, args=["--brand-new", "5", "--log-requests"]).args == ("--brand-new", "5", "--log-requests")


def test_an_engine_of_unknown_version_does_not_get_what_hides_settings():
    assert "spec.parallelism.tensor" in refusal(None, args=["--tp", "2"]).message
    assert "spec.model.uri" in refusal(None, args=["--model-path=x"]).message


# --- properties ---------------------------------------------------------------------------------------------------

WORDS = st.one_of(
    st.sampled_from(
        ["--page-size", "1", "--log-requests", "--", "-1", "--x=", "--allowed-media-domains", "--tp", "=", ""]
    ),
    st.text(max_size=12),
)
SETTINGS = st.dictionaries(
    st.sampled_from(["page_size", "log_requests", "mm_process_config", "SGLANG_VLM_CACHE_SIZE_MB", "x", ""]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2),
    max_size=3,
)


def outcome(version, **said):
    try:
        return choices(version, **said)
    except InvalidInput as error:
        return error


@given(st.lists(WORDS, max_size=6), SETTINGS, st.sampled_from(["0.5.9", newest(), None]))
def test_any_input_is_understood_or_refused_in_one_line(args, settings, version):
    found = outcome(version, args=args, settings=settings)
    if isinstance(found, InvalidInput):
        assert found.path
        assert "\n" not in str(found)
    else:
        assert set(settings) <= set(found.settings)
        assert set(found.args) <= set(args)


@pytest.mark.parametrize(
    "args",
    [
        ["--api-key sk-123"],
        ["-api-key=sk-123"],
        ["--log-requests", "sk-123"],
        ["--api-key", "sk-123"],
        ["--key=sk-123"],
    ],
)
def test_what_may_be_a_secret_is_not_repeated(args):
    assert "sk-123" not in str(refusal(args=args))


def test_two_values_of_a_variable_of_another_program_are_not_repeated():
    error = refusal(main={"env": [variable("DB", "sk-1")]}, env=[variable("DB", "sk-2")])
    assert "DB has another value in" in str(error)
    assert "sk-" not in str(error)


@pytest.mark.parametrize("version", [newest(), None])
def test_a_flag_and_its_value_in_one_entry_are_two(version):
    error = refusal(version, args=["--max-running-requests 5"])
    assert error.path == "spec.engine.args[0]"
    assert "--max-running-requests and its value are two entries" in str(error)


def test_a_flag_among_the_settings_is_told_its_name_there():
    error = refusal(settings={"--max-running-requests": 5})
    assert "which is a flag: write max_running_requests here" in str(error)
