"""The override set: when each value fires, what it becomes, and what is said when it does not."""

import pytest
from unit.plan.builders import a100, images, node, plan, reasons, service, values

from vlm_api.limits import RequestLimits
from vlm_api.plan import Source
from vlm_operator.errors import InvalidInput

THE_SET = {
    "SGLANG_VLM_CACHE_SIZE_MB": 0,
    "mm_preprocess_cache_size_mb": 0,
    "mm_feature_transport": "cuda_ipc",
    "SGLANG_MM_FEATURE_CACHE_MB": 3072,
    "radix_eviction_policy": "priority",
    "prefill_decode_interval": 22,
    "decode_attention_backend": "flashinfer",
    "cuda_graph_max_bs_decode": 400,
}


def engine(**more) -> dict:
    return more


def env(name: str, value: str) -> dict:
    return engine(env=[{"name": name, "value": value}])


def test_the_reference_workload_on_an_h100_gets_the_whole_set():
    made = plan()
    assert values(made) == THE_SET | {"max_running_requests": 400}
    assert [f.reason for f in made.findings] == ["MediaFromPublicHosts"]
    for name in THE_SET:
        setting = made.setting(name)
        assert setting.source is Source.PROFILE
        assert setting.reason
        assert "36411" in setting.evidence


@pytest.mark.parametrize(
    "hardware",
    [
        pytest.param(a100(), id="an A100, of another compute capability"),
        pytest.param(node(memory_mib=61_439), id="a Hopper GPU one MiB too small"),
        pytest.param(node(memory_mib=None), id="a Hopper GPU of unknown memory"),
        pytest.param(node(capability=None, product=None), id="a GPU of unknown compute capability"),
        pytest.param(node(capability="10.0", product="NVIDIA-B200", memory_mib=183_359), id="Blackwell"),
    ],
)
def test_other_hardware_gets_nothing_of_the_set_and_every_setting_says_why(hardware):
    made = plan(None, hardware)
    assert values(made) == {"max_running_requests": 400}
    for name in THE_SET:
        setting = made.setting(name)
        assert not setting.applied
        assert setting.source is Source.ENGINE
        assert "the profile is for" in setting.reason


def test_another_model_family_gets_nothing_of_the_set():
    model = {"uri": "hf://Qwen/Qwen2.5-VL-7B-Instruct", "architecture": "Qwen2_5_VLForConditionalGeneration"}
    assert values(plan(service(model=model))) == {"max_running_requests": 400}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"engine": engine(settings={"prefill_decode_interval": 10})},
            {"prefill_decode_interval": 10},
            id="the user's interval stands",
        ),
        pytest.param(
            {"engine": engine(args=["--radix-eviction-policy=lru"])},
            {"radix_eviction_policy": "lru"},
            id="lru on purpose stands",
        ),
        pytest.param(
            {"engine": engine(settings={"attention_backend": "fa3"})},
            {"attention_backend": "fa3", "decode_attention_backend": None},
            id="the user's attention backend decides decode too",
        ),
        pytest.param(
            {"engine": engine(settings={"prefill_attention_backend": "flashinfer"})},
            {"decode_attention_backend": "flashinfer"},
            id="a prefill backend alone does not decide decode",
        ),
        pytest.param(
            {"engine": env("SGLANG_VLM_CACHE_SIZE_MB", "100")},
            {
                "SGLANG_VLM_CACHE_SIZE_MB": 100,
                "mm_feature_transport": None,
                "SGLANG_MM_FEATURE_CACHE_MB": None,
                "radix_eviction_policy": "priority",
            },
            id="a cache that the user keeps takes CUDA IPC and its pool back, and nothing else",
        ),
        pytest.param(
            {"engine": engine(settings={"mm_preprocess_cache_size_mb": 64})},
            {"mm_feature_transport": None, "SGLANG_MM_FEATURE_CACHE_MB": None, "prefill_decode_interval": 22},
            id="the other cache does too",
        ),
        pytest.param(
            {"engine": env("SGLANG_USE_CUDA_IPC_TRANSPORT", "0")},
            {"mm_feature_transport": "cpu", "SGLANG_MM_FEATURE_CACHE_MB": None},
            id="a no to CUDA IPC in the old spelling is passed on",
        ),
        pytest.param(
            {"engine": env("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64, expandable_segments:True")},
            {"mm_feature_transport": "cpu", "SGLANG_MM_FEATURE_CACHE_MB": None},
            id="expandable segments rule CUDA IPC out",
        ),
        pytest.param(
            {"engine": env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")},
            {"mm_feature_transport": "cuda_ipc"},
            id="expandable segments turned off do not",
        ),
        pytest.param(
            {"engine": engine(settings={"image_processor_backend": "pil"})},
            {"mm_feature_transport": "cpu"},
            id="images made on the CPU have nothing to move",
        ),
        pytest.param(
            {"engine": engine(settings={"cuda_graph_max_bs_decode": 128})},
            {"cuda_graph_max_bs_decode": 128},
            id="the user's graph limit stands",
        ),
        pytest.param(
            {"engine": engine(settings={"cuda_graph_bs_decode": [1, 2, 4]})},
            {"cuda_graph_max_bs_decode": None},
            id="the user's graph sizes decide the limit",
        ),
        pytest.param(
            {"engine": engine(settings={"max_running_requests": 64})},
            {"max_running_requests": 64, "cuda_graph_max_bs_decode": 64},
            id="the graph follows the user's running limit",
        ),
        pytest.param(
            {"workload": {"concurrency": 399, "images": {"reuse": "SingleUse"}}},
            {"SGLANG_MM_FEATURE_CACHE_MB": 1024, "cuda_graph_max_bs_decode": 399},
            id="below 400 running requests the pool's step is 1 GiB",
        ),
        pytest.param(
            {"workload": {"concurrency": 400}},
            {"SGLANG_MM_FEATURE_CACHE_MB": 3072, "mm_feature_transport": "cuda_ipc"},
            id="unknown reuse counts as seen once",
        ),
        pytest.param(
            {"workload": {}},
            {"SGLANG_MM_FEATURE_CACHE_MB": 1024, "cuda_graph_max_bs_decode": None, "max_running_requests": None},
            id="without a concurrency the running limit is the engine's",
        ),
        pytest.param(
            {"workload": {"concurrency": 512}}, {"cuda_graph_max_bs_decode": 512}, id="the graph is widened up to 512"
        ),
        pytest.param(
            {"workload": {"concurrency": 513}},
            {"cuda_graph_max_bs_decode": None, "max_running_requests": 513},
            id="and not beyond",
        ),
        pytest.param(
            {"workload": images(reuse="Repeated")},
            {
                "mm_feature_transport": None,
                "SGLANG_MM_FEATURE_CACHE_MB": None,
                "prefill_decode_interval": 22,
                "decode_attention_backend": "flashinfer",
            },
            id="repeated images keep their cache and lose CUDA IPC; the rest stays",
        ),
        pytest.param(
            {"workload": images(width=1280, height=720)},
            {"SGLANG_MM_FEATURE_CACHE_MB": 9088},
            id="larger images need a larger pool",
        ),
        pytest.param(
            {"parallelism": {"tensor": 16}, "multinode": {"nodeCount": 2}},
            {"mm_feature_transport": None, "SGLANG_MM_FEATURE_CACHE_MB": None, "SGLANG_VLM_CACHE_SIZE_MB": 0},
            id="CUDA IPC cannot cross nodes",
        ),
    ],
)
def test_the_set_gives_way_where_the_user_or_the_facts_say_so(spec, expected):
    made = plan(service(**spec), node("a"), node("b"))
    told = values(made)
    assert {name: told.get(name) for name in expected} == expected
    for name, value in expected.items():
        setting = made.setting(name)
        assert setting.reason
        if value is None:
            assert not setting.applied


def test_what_the_user_wrote_is_shown_as_theirs_and_where_it_stands():
    made = plan(
        service(engine=engine(settings={"prefill_decode_interval": 10}, args=["--radix-eviction-policy", "lru"]))
    )
    assert made.setting("prefill_decode_interval").source is Source.USER
    assert "spec.engine.settings" in made.setting("prefill_decode_interval").reason
    assert made.setting("radix_eviction_policy").source is Source.USER
    assert made.engine.args.count("--radix-eviction-policy") == 1
    assert made.engine.args[-2:] == ["--radix-eviction-policy", "lru"]


def test_repeated_images_get_an_embedding_cache_that_holds_those_in_flight():
    made = plan(service(model={"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}, workload=images(reuse="Repeated")))
    # 400 images of 256 tokens, each 4 x 4096 values of 2 bytes: 3,200 MiB.
    assert values(made)["SGLANG_VLM_CACHE_SIZE_MB"] == 3200


def test_an_embedding_cache_is_never_below_the_engine_s():
    made = plan(service(workload=images(reuse="Repeated")))
    setting = made.setting("SGLANG_VLM_CACHE_SIZE_MB")
    assert setting.applied
    assert setting.value >= 100
    assert setting.source is Source.WORKLOAD


def test_tuning_off_passes_only_what_the_user_wrote_and_shows_what_it_leaves_out():
    made = plan(service(engine=engine(tuning="Off", settings={"page_size": 16})))
    assert values(made) == {"page_size": 16}
    assert "tuning is Off" in made.setting("mm_feature_transport").reason
    assert made.setting("mm_feature_transport").expected == "cuda_ipc"
    assert "--max-running-requests" not in made.engine.args


def test_a_written_no_to_cuda_ipc_reaches_the_engine_with_tuning_off_as_well():
    # The engine's own built-in set overrules the variable, and nothing but the flag.
    no = [{"name": "SGLANG_USE_CUDA_IPC_TRANSPORT", "value": "false"}]
    made = plan(service(engine=engine(tuning="Off", env=no)))
    assert values(made) == {"SGLANG_USE_CUDA_IPC_TRANSPORT": False, "mm_feature_transport": "cpu"}
    assert made.setting("mm_feature_transport").source is Source.USER


def test_what_is_left_to_the_engine_says_what_it_will_choose():
    made = plan(None, a100())
    expected = {s.name: s.expected for s in made.settings if not s.applied}
    assert expected["attention_backend"] == "flashinfer"
    assert expected["mm_feature_transport"] == "cpu"
    assert expected["radix_eviction_policy"] == "lru"
    assert expected["prefill_decode_interval"] == 0
    assert expected["cuda_graph_max_bs_decode"] == 256
    assert plan().setting("attention_backend").expected == "fa3"


def test_a_backend_that_the_engine_would_replace_for_the_cache_s_type_is_refused():
    settings = {"attention_backend": "fa3", "kv_cache_dtype": "fp8_e5m2"}
    with pytest.raises(InvalidInput, match="the engine would use triton"):
        plan(service(engine=engine(settings=settings)))


CHAIN = {
    "speculative_algorithm": "EAGLE",
    "speculative_draft_model_path": "/drafts",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
}
TREE = CHAIN | {"speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8}
B200 = node("b200", "NVIDIA-B200", 183_359, "10.0")


@pytest.mark.parametrize(
    ("settings", "hardware", "base", "decode"),
    [
        ({"kv_cache_dtype": "fp8_e5m2"}, node(), "triton", "flashinfer"),
        ({"kv_cache_dtype": "fp8_e5m2", "enable_deterministic_inference": True}, node(), "triton", "flashinfer"),
        ({"kv_cache_dtype": "fp8_e4m3"}, node(), "fa3", "flashinfer"),
        ({"kv_cache_dtype": "fp8_e5m2"}, a100(), "flashinfer", "flashinfer"),
        (TREE, node(), "flashinfer", "flashinfer"),
        (CHAIN, node(), "fa3", "flashinfer"),
        (TREE, B200, "flashinfer", "flashinfer"),
        (CHAIN, B200, "trtllm_mha", "trtllm_mha"),
    ],
)
def test_an_attention_backend_that_the_engine_gives_up_is_not_expected(settings, hardware, base, decode):
    """What the newest release answered for these GPUs, asked as tests/conformance asks it."""
    made = plan(service(engine=engine(settings=settings)), hardware)
    backends = {name: made.setting(name) for name in ("attention_backend", "decode_attention_backend")}
    assert {name: s.value if s.applied else s.expected for name, s in backends.items()} == {
        "attention_backend": base,
        "decode_attention_backend": decode,
    }


def test_a_pool_that_would_take_the_kv_cache_s_room_is_capped_with_the_sum():
    made = plan(service(workload=images(width=3840, height=2160)))
    assert reasons(made) == ["FeaturePoolCapped", "KvCacheHoldsFewer", "MediaFromPublicHosts"]
    message = made.findings[0].message
    pool = values(made)["SGLANG_MM_FEATURE_CACHE_MB"]
    assert f"{pool:,} MiB" in message
    assert "84,1" in message  # 400 images x 191.25 MiB x 1.1
    assert made.memory.kv_cache_mib >= pool
    fitting = int(message.partition("with workload.concurrency ")[2].split(",")[0])
    assert "FeaturePoolCapped" not in reasons(
        plan(service(workload=images(width=3840, height=2160) | {"concurrency": fitting}))
    )


def test_a_capped_pool_advises_no_concurrency_where_not_even_one_request_fits():
    made = plan(service(workload=images(width=4096, height=4096, perRequest=16)))
    message = next(f.message for f in made.findings if f.reason == "FeaturePoolCapped")
    assert "All would fit with smaller images, or on a GPU with more memory" in message
    assert "6,400 images" in message


def test_a_model_larger_than_the_memory_is_refused_with_the_sum_and_a_plan_that_fits():
    model = {"uri": "hf://x/y", "architecture": "Qwen3VLMoeForConditionalGeneration", "parametersBillion": 235}
    made = plan(service(model=model, workload={"concurrency": 8}))
    (error,) = made.errors
    assert error.reason == "ModelDoesNotFit"
    assert "448,227 MiB" in error.message
    assert "on 8 devices (parallelism.tensor: 8), or on 4 devices (parallelism.tensor: 4) with fp8" in error.message


@pytest.mark.parametrize(
    ("spec", "path", "says"),
    [
        pytest.param(
            {
                "engine": engine(settings={"mm_feature_transport": "cuda_ipc"}),
                "parallelism": {"tensor": 16},
                "multinode": {"nodeCount": 2},
            },
            "spec.engine.settings.mm_feature_transport",
            "cannot cross nodes",
            id="CUDA IPC over two nodes",
        ),
        pytest.param(
            {"engine": engine(settings={"mm_feature_transport": "cuda_ipc"}), "hardware": {"device": "cpu"}},
            "spec.engine.settings.mm_feature_transport",
            "needs a GPU",
            id="CUDA IPC without a GPU",
        ),
        pytest.param(
            {"engine": engine(settings={"cuda_graph_bs_decode": [1, 8]}, args=["--cuda-graph-max-bs-decode", "200"])},
            "spec.engine.args[0]",
            "not the largest of the sizes",
            id="two limits of the decode graph",
        ),
        pytest.param(
            {
                "engine": engine(
                    settings={
                        "attention_backend": "fa3",
                        "prefill_attention_backend": "flashinfer",
                        "decode_attention_backend": "flashinfer",
                    }
                )
            },
            "spec.engine.settings.attention_backend",
            "never used",
            id="a base backend that prefill and decode replace",
        ),
        pytest.param(
            {"workload": images(width=20_000, height=50)},
            "spec.workload.images",
            "200",
            id="an image that the processor refuses",
        ),
    ],
)
def test_what_the_engine_would_refuse_on_any_cluster_is_refused_as_input(spec, path, says):
    with pytest.raises(InvalidInput, match=says) as refused:
        plan(service(**spec))
    assert refused.value.path == path


@pytest.mark.parametrize(("algorithm", "limit"), [("NGRAM", 48), ("eagle3", 48), (None, None)])
def test_the_running_limit_that_speculative_decoding_brings_is_expected_where_no_other_is_declared(algorithm, limit):
    settings = {} if algorithm is None else {"speculative_algorithm": algorithm}
    engine = {"settings": settings}
    assert plan(service(workload={}, engine=engine)).setting("max_running_requests").expected == limit
    assert values(plan(service(engine=engine)))["max_running_requests"] == 400


def test_enforced_images_become_limits_of_the_engine():
    told = values(plan(service(workload=images(enforce=True, perRequest=2))))
    assert told["limit_mm_data_per_request"] == {"image": 2, "video": 0}
    assert told["mm_process_config"] == {"image": {"size": {"shortest_edge": 65_536, "longest_edge": 262_144}}}


def test_a_service_on_the_cpu_asks_for_no_gpu_and_for_a_bounded_cache():
    made = plan(service(hardware={"device": "cpu"}, workload={"concurrency": 4}), node())
    assert made.resources.devices_per_pod == 0
    assert values(made)["max_total_tokens"] == 8192
    assert made.engine.args[made.engine.args.index("--device") + 1] == "cpu"
    assert made.engine.env["TORCHDYNAMO_DISABLE"] == "1"
    assert "mm_feature_transport" not in values(made)


@pytest.mark.parametrize(
    ("version", "told", "not_told"),
    [
        pytest.param(
            "0.5.19",
            {name: value for name, value in THE_SET.items() if name != "radix_eviction_policy"},
            ("radix_eviction_policy",),
            id="0.5.19 has every flag, and the operator brings the values, but it evicts answers no sooner than prompts",
        ),
        pytest.param(
            "0.5.16",
            {"mm_feature_transport": "cuda_ipc", "SGLANG_MM_FEATURE_CACHE_MB": 3072, "cuda_graph_max_bs_decode": 400},
            ("prefill_decode_interval", "mm_preprocess_cache_size_mb", "SGLANG_USE_CUDA_IPC_TRANSPORT"),
            id="0.5.16 has the transport but not the interval",
        ),
        pytest.param(
            "0.5.12.post1",
            {
                "SGLANG_USE_CUDA_IPC_TRANSPORT": 1,
                "SGLANG_MM_FEATURE_CACHE_MB": 3072,
            },
            ("mm_feature_transport", "prefill_decode_interval", "radix_eviction_policy"),
            id="0.5.12 is asked for CUDA IPC by its variable",
        ),
        pytest.param(
            "0.5.9",
            {"SGLANG_MM_FEATURE_CACHE_MB": 4096},
            ("mm_feature_transport",),
            id="0.5.9 would take a pool of 4 GiB, and gets no less",
        ),
    ],
)
def test_a_release_without_the_set_is_told_what_it_can_be_told(version, told, not_told):
    made = plan(service(engine={"version": version}))
    assert values(made).items() >= told.items()
    for name in not_told:
        assert name not in values(made)
    for name in ("mm_feature_transport", "prefill_decode_interval"):
        assert made.setting(name).reason


@pytest.mark.parametrize(
    ("workload", "applied"),
    [
        pytest.param(images(), False, id="copies of small images fit into what is reserved"),
        pytest.param(images(width=1920, height=1080), True, id="copies of large images do not"),
    ],
)
def test_copies_of_queued_images_are_counted_on_every_rank(workload, applied):
    setting = plan(service(workload=workload, parallelism={"tensor": 4})).setting("mm_enable_dp_encoder")
    assert setting.applied is applied
    assert "copies on each of 4 ranks" in setting.reason


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        pytest.param(
            {
                "model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"},
                "workload": {"concurrency": 400, "inputTokens": 100_000},
            },
            "KvCacheHoldsFewer",
            "holds about 2 requests of 100,256 tokens, and 400 are declared",
            id="more running requests than the KV cache holds",
        ),
        pytest.param(
            {"engine": engine(settings={"context_length": 256})},
            "ContextTooShort",
            "has 514 tokens with its images, and context_length is 256",
            id="a context shorter than a declared request",
        ),
        pytest.param(
            {"scaling": {"maxReplicas": 4, "targetInFlight": 500}},
            "ScalesLate",
            "only when 100 requests already wait",
            id="an autoscaling target above what a replica runs",
        ),
        pytest.param(
            {"sharedMemorySize": "64Mi"},
            "SharedMemoryTooSmall",
            "less than the 8,192 MiB",
            id="too little shared memory",
        ),
    ],
)
def test_numbers_that_work_against_each_other_are_told(spec, reason, says):
    (finding,) = (f for f in plan(service(**spec)).findings if f.reason == reason)
    assert says in finding.message


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--host", "127.0.0.1"], "loopback"),
        (["--disaggregation-mode", "prefill"], "two engines"),
        (["--json-model-override-args", "{a:1}"], "not JSON"),
    ],
)
def test_arguments_that_work_against_the_service_are_refused(args, says):
    with pytest.raises(InvalidInput, match=says):
        plan(service(engine=engine(args=args)))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"engine": {"version": "0.5.9"}}, "spec.engine.version"),
        ({"engine": engine(args=["--enable-http2"])}, "spec.engine.args[0]"),
    ],
)
def test_control_paths_that_stay_open_to_clients_are_told(spec, path):
    (finding,) = (f for f in plan(service(**spec)).findings if f.reason == "ControlPathsOpen")
    assert finding.path == path
    assert "NetworkPolicy" in finding.message


def test_an_architecture_that_a_known_model_does_not_have_is_told():
    model = {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct", "architecture": "Qwen2_5_VLForConditionalGeneration"}
    made = plan(service(model=model))
    (message,) = [f.message for f in made.findings if f.reason == "ArchitectureDiffers"]
    assert "config.json has Qwen3VLForConditionalGeneration" in message
    model["architecture"] = "Qwen3VLForConditionalGeneration"
    assert "ArchitectureDiffers" not in reasons(plan(service(model=model)))


def test_the_plan_says_what_a_request_may_bring_only_where_it_is_not_usual():
    assert plan(service(workload={"images": {"perRequest": 8, "width": 512, "height": 512}})).runtime.limits is None
    assert plan(service(workload={"images": {"perRequest": 9}})).runtime.limits == RequestLimits(images=36)
    exact = plan(service(workload={"images": {"perRequest": 2, "width": 512, "height": 256, "enforce": True}}))
    assert exact.runtime.limits == RequestLimits(images=2, image_pixels=131_072, request_pixels=262_144, videos=0)
    allowed = {"settings": {"limit_mm_data_per_request": {"image": 64}}}
    assert plan(service(engine=allowed)).runtime.limits == RequestLimits(images=64)
