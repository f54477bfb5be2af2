"""How a device's memory is shared out, as the engine will find it: contexts, the pool's second time, loading, ranks."""

import pytest
from unit.plan.builders import REFERENCE_WORKLOAD, a100, images, node, plan, reasons, request_of, service, values

from vlm_operator.manifests.workload import autoscaler
from vlm_operator.sglang.catalogue.releases import newest

QWEN3_VL_8B = {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}
QWEN3_VL_30B = {"uri": "hf://Qwen/Qwen3-VL-30B-A3B-Instruct"}
QWEN3_VL_32B = {"uri": "hf://Qwen/Qwen3-VL-32B-Instruct"}
BALANCE_CHECK = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"
L40S = node("ada", "NVIDIA-L40S", 46_068, "8.9")
L4 = node("small", "NVIDIA-L4", 23_034, "8.9")


def test_a_pool_of_the_user_s_that_is_too_small_stays_and_is_told():
    spec = {"workload": {"concurrency": 200, "images": {"perRequest": 2, "width": 1280, "height": 720}}}
    pool = {"SGLANG_MM_FEATURE_CACHE_MB": 1024, "mm_feature_transport": "cuda_ipc"}
    made = plan(service(engine={"settings": pool}, **spec))
    told = finding(made, "FeaturePoolTooSmall")
    assert "a feature pool of 1,024 MiB holds 45 of 400 images" in told.message
    assert told.path == "spec.engine.settings.SGLANG_MM_FEATURE_CACHE_MB"
    enough = pool | {"SGLANG_MM_FEATURE_CACHE_MB": 9216}
    assert "FeaturePoolTooSmall" not in reasons(plan(service(engine={"settings": enough}, **spec)))
    through_cpu = pool | {"mm_feature_transport": "cpu"}
    assert "FeaturePoolTooSmall" not in reasons(plan(service(engine={"settings": through_cpu}, **spec)))


def engine(version: str = newest(), **settings) -> dict:
    return {"version": version, "settings": settings}


def finding(made, reason: str):
    (found,) = (f for f in made.findings if f.reason == reason)
    return found


def test_the_parts_of_a_device_make_up_the_whole():
    made = plan(service(model=QWEN3_VL_8B))
    sums = made.memory
    parts = (sums.weights_mib, sums.feature_pool_mib, sums.embedding_cache_mib, sums.reserved_mib, sums.kv_cache_mib)
    assert sum(parts) == 81_559
    # 0.7694 x (81,559 - 1,280) of the device less weights, the second CUDA context and the pool twice.
    assert sums.kv_cache_mib == 38_133


def test_a_release_that_does_not_reserve_the_pool_counts_it_once():
    newer, older = (plan(service(engine=engine(version))).memory for version in ("0.5.18", "0.5.17"))
    assert older.feature_pool_mib == newer.feature_pool_mib == 3072
    assert older.kv_cache_mib - newer.kv_cache_mib == 3072


def test_images_go_through_the_cpu_where_weights_leave_no_room_for_a_pool():
    made = plan(service(model=QWEN3_VL_30B))
    assert not made.errors
    assert values(made)["mm_feature_transport"] == "cpu"
    assert "SGLANG_MM_FEATURE_CACHE_MB" not in values(made)
    assert made.memory.feature_pool_mib is None
    assert made.memory.kv_cache_mib > 2000
    assert "would fit, so image features go through the CPU" in finding(made, "NoRoomForFeaturePool").message


def test_a_release_without_the_flag_is_told_by_the_variable_to_leave_images_on_the_cpu():
    told = values(plan(service(model=QWEN3_VL_30B, engine={"version": "0.5.12.post1"})))
    assert told["SGLANG_USE_CUDA_IPC_TRANSPORT"] == 0
    assert "SGLANG_MM_FEATURE_CACHE_MB" not in told


def test_a_transport_that_the_user_chose_stays_and_the_pool_is_made_smaller():
    made = plan(service(model=QWEN3_VL_30B, engine=engine(mm_feature_transport="cuda_ipc")))
    assert not made.errors
    assert values(made)["mm_feature_transport"] == "cuda_ipc"
    assert 64 <= values(made)["SGLANG_MM_FEATURE_CACHE_MB"] < 1024
    assert "FeaturePoolCapped" in reasons(made)


def test_a_pool_of_the_user_s_that_has_no_room_is_refused():
    made = plan(service(model=QWEN3_VL_30B, engine=engine(SGLANG_MM_FEATURE_CACHE_MB=3072)))
    assert "feature pool 3,072 MiB (counted twice, as the engine does)" in finding(made, "ModelDoesNotFit").message


def test_a_pool_smaller_than_the_engine_s_step_is_told_even_where_it_holds_all_images():
    model = {"uri": "hf://x/y", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 27}
    made = plan(service(model=model, workload=images(width=256, height=256)))
    assert values(made)["SGLANG_MM_FEATURE_CACHE_MB"] == 704  # 400 images of 1.5 MiB and a tenth more
    assert "instead of the engine's step of 3,072 MiB" in finding(made, "FeaturePoolCapped").message


def test_the_kv_cache_keeps_room_for_one_whole_request():
    workload = images(width=8000, height=8000, perRequest=12) | {"concurrency": 50}
    made = plan(service(model=QWEN3_VL_8B, workload=workload))
    assert not made.errors
    # 196,864 tokens of 144 KiB.
    assert made.memory.kv_cache_mib >= 27_684


def test_a_large_pool_turns_the_engine_s_balance_check_off_with_tensor_parallelism_alone():
    workload = images(width=1280, height=720)
    two = plan(service(model=QWEN3_VL_8B, parallelism={"tensor": 2}, workload=workload))
    assert values(two)["SGLANG_MM_FEATURE_CACHE_MB"] == 9088
    assert values(two)[BALANCE_CHECK] == 0
    assert two.engine.env[BALANCE_CHECK] == "0"
    assert BALANCE_CHECK not in values(plan(service(model=QWEN3_VL_8B, workload=workload)))
    assert BALANCE_CHECK not in values(plan(service(model=QWEN3_VL_8B, parallelism={"tensor": 2})))


def test_a_balance_check_that_the_user_keeps_bounds_the_pool():
    workload = images(width=1280, height=720)
    kept = engine(**{BALANCE_CHECK: True})
    made = plan(service(model=QWEN3_VL_8B, parallelism={"tensor": 2}, workload=workload, engine=kept))
    assert values(made)["SGLANG_MM_FEATURE_CACHE_MB"] == 4032
    assert BALANCE_CHECK in finding(made, "FeaturePoolCapped").message
    both = engine(**{BALANCE_CHECK: True, "SGLANG_MM_FEATURE_CACHE_MB": 9000})
    made = plan(service(model=QWEN3_VL_8B, parallelism={"tensor": 2}, workload=workload, engine=both))
    assert finding(made, "TensorRanksUnbalanced").path == "spec.engine.settings.SGLANG_MM_FEATURE_CACHE_MB"


def test_what_only_the_allowances_miss_is_warned_of_and_not_refused():
    def made(fraction: float):
        model = {"uri": "hf://x/y", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 33}
        return plan(
            service(model=model, workload={"concurrency": 8}, engine=engine(mem_fraction_static=fraction)), a100()
        )

    # Weights are 62,943 MiB; 0.777 of 81,920 MiB are 63,651, and of the 80,640 beside a CUDA context 62,657.
    assert {"MemoryTight", "ModelDoesNotFit"} & set(reasons(made(0.777))) == {"MemoryTight"}
    message = finding(made(0.777), "MemoryTight").message
    assert "raise mem_fraction_static a little, or it would fit on 2 devices" in message
    assert not {"MemoryTight", "ModelDoesNotFit"} & set(reasons(made(0.785)))
    assert "ModelDoesNotFit" in reasons(made(0.77))


@pytest.mark.parametrize("method", ["fp8", "w8a8_fp8", "mxfp8"])
def test_weights_that_are_quantised_after_loading_need_room_as_they_are(method):
    small = REFERENCE_WORKLOAD | {"concurrency": 8}
    made = plan(service(model=QWEN3_VL_32B, workload=small, engine=engine(quantization=method)), L40S)
    error = finding(made, "ModelDoesNotFit")
    assert error.path == "spec.engine.settings.quantization"
    assert "63,625 MiB on 1 device" in error.message
    assert "use a quantized checkpoint (spec.model.uri), or more devices" in error.message


def test_files_of_which_nothing_is_known_may_be_quantised_already_and_are_not_refused():
    model = {"uri": "hf://x/y-FP8", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 33}
    small = REFERENCE_WORKLOAD | {"concurrency": 8}
    made = plan(service(model=model, workload=small, engine=engine(quantization="fp8")), L40S)
    assert not made.errors
    assert "if they are not quantized themselves they are 62,943 MiB" in finding(made, "LoadingNotChecked").message


def test_weights_that_are_loaded_layer_by_layer_need_room_once_they_are_quantised():
    layered = engine(quantization="fp8", load_format="layered")
    small = REFERENCE_WORKLOAD | {"concurrency": 8}
    assert not plan(service(model=QWEN3_VL_32B, workload=small, engine=layered), L40S).errors


def test_quantisation_while_loading_is_advised_only_where_the_files_weights_have_room():
    small = REFERENCE_WORKLOAD | {"concurrency": 8}
    message = finding(plan(service(model=QWEN3_VL_32B, workload=small), L40S), "ModelDoesNotFit").message
    assert "on 1 device (parallelism.tensor: 1) with fp8 weights (a checkpoint in fp8, spec.model.uri)" in message
    message = finding(plan(service(model=QWEN3_VL_8B, workload=small), L4), "ModelDoesNotFit").message
    assert "(a checkpoint in fp8, spec.model.uri, or engine.settings.quantization: fp8)" in message


def test_data_ranks_share_the_declared_requests():
    made = plan(
        service(model=QWEN3_VL_8B, parallelism={"data": 8}, workload=REFERENCE_WORKLOAD | {"concurrency": 2048})
    )
    # 256 requests of 72 MiB on each rank.
    assert "KvCacheHoldsFewer" not in reasons(made)
    made = plan(
        service(model=QWEN3_VL_8B, parallelism={"data": 2}, workload=REFERENCE_WORKLOAD | {"concurrency": 2048})
    )
    message = finding(made, "KvCacheHoldsFewer").message
    assert "of each of 2 data ranks" in message
    assert "1,024 are declared to run at once on each" in message


def test_without_chunks_the_engine_leaves_room_for_a_whole_prefill_batch():
    whole, chunks = (plan(service(engine=engine(**s))).memory for s in ({"chunked_prefill_size": -1}, {}))
    # 16,384 tokens instead of 8,192, 1.5 MiB each, and a little more by the factor for the vision encoder.
    assert 8192 * 1.5 * 0.9 < whole.reserved_mib - chunks.reserved_mib < 8192 * 1.5
    limited = plan(service(engine=engine(chunked_prefill_size=-1, max_prefill_tokens=8192))).memory
    assert limited.reserved_mib == chunks.reserved_mib


def test_an_older_release_fits_on_a_small_gpu_by_its_own_numbers():
    workload = REFERENCE_WORKLOAD | {"concurrency": 16}
    older = plan(service(model=QWEN3_VL_8B, engine=engine("0.5.12.post1"), workload=workload), L4)
    assert not older.errors
    assert older.setting("cuda_graph_max_bs_decode").expected == 24
    assert "ModelDoesNotFit" in reasons(plan(service(model=QWEN3_VL_8B, workload=workload), L4))


def test_a_pool_of_another_transport_and_one_that_the_engine_takes_by_itself_are_in_the_sum():
    by_vmm = plan(service(engine=engine(mm_feature_transport="cuda_vmm")))
    assert by_vmm.memory.feature_pool_mib == 1024
    untuned = plan(service(engine={"tuning": "Off"}))
    assert untuned.memory.feature_pool_mib == 1024
    assert plan(None, a100()).memory.feature_pool_mib is None


def test_a_cache_of_embeddings_leaves_the_kv_cache_its_part():
    made = plan(service(model=QWEN3_VL_30B, workload=images(width=1920, height=1080, reuse="Repeated")))
    assert not made.errors
    assert 1000 < values(made)["SGLANG_VLM_CACHE_SIZE_MB"] < 1408
    assert made.memory.kv_cache_mib >= values(made)["SGLANG_VLM_CACHE_SIZE_MB"] - 64
    assert "need 12,800 MiB, but of device 81,559 MiB" in finding(made, "EmbeddingCacheCapped").message
    users = plan(
        service(
            model=QWEN3_VL_30B,
            workload=images(width=1920, height=1080, reuse="Repeated"),
            engine=engine(SGLANG_VLM_CACHE_SIZE_MB=500),
        )
    )
    assert values(users)["SGLANG_VLM_CACHE_SIZE_MB"] == 500
    assert "EmbeddingCacheCapped" not in reasons(users)


def test_attention_groups_share_requests_and_have_all_key_value_heads():
    model = {"uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct-FP8"}
    ranks = {"tensor": 8}
    plain = plan(service(model=model, parallelism=ranks, engine=engine(ep_size=8)))
    groups = plan(service(model=model, parallelism=ranks, engine=engine(ep_size=8, attn_dp_size=8)))
    assert values(plain)["cuda_graph_max_bs_decode"] == 400
    assert values(groups)["cuda_graph_max_bs_decode"] == 50
    assert "of which each rank runs 50 at most" in groups.setting("cuda_graph_max_bs_decode").reason
    # Graphs of 50 instead of 400 save 700 MiB, padding them for eight groups takes 1,200; the vision factor adds a little.
    assert 0 < groups.memory.reserved_mib - plain.memory.reserved_mib < 600


@pytest.mark.parametrize(
    ("parallelism", "settings", "groups"),
    [
        ({"tensor": 2, "data": 2}, {"enable_dp_attention": True}, 2),
        ({"tensor": 2}, {"attn_dp_size": 2}, 2),
        ({"data": 2}, {}, 2),
    ],
)
def test_requests_that_wait_are_counted_for_each_of_the_groups_that_share_them(parallelism, settings, groups):
    many = REFERENCE_WORKLOAD | {"concurrency": 1600}
    made = plan(service(model=QWEN3_VL_8B, workload=many, parallelism=parallelism, engine=engine(**settings)), L40S)
    message = finding(made, "KvCacheHoldsFewer").message
    assert f"of each of {groups} data ranks" in message
    assert "800 are declared to run at once on each" in message


def test_data_ranks_have_graphs_for_more_than_their_share():
    two = plan(service(model=QWEN3_VL_8B, parallelism={"data": 2}, workload=REFERENCE_WORKLOAD | {"concurrency": 800}))
    assert values(two)["cuda_graph_max_bs_decode"] == 512
    many = plan(service(model=QWEN3_VL_8B, workload=REFERENCE_WORKLOAD | {"concurrency": 800}))
    assert "cuda_graph_max_bs_decode" not in values(many)


def test_very_many_requests_do_not_take_the_reserve_with_rows_that_never_run():
    many = REFERENCE_WORKLOAD | {"concurrency": 5000}
    made = plan(service(model=QWEN3_VL_8B, workload=many), L40S)
    assert values(made)["max_running_requests"] == 2048
    assert "of which the KV cache holds about 25" in made.setting("max_running_requests").reason
    assert "5,000 are declared to run at once" in finding(made, "KvCacheHoldsFewer").message
    assert values(plan(service(workload=REFERENCE_WORKLOAD | {"concurrency": 2048})))["max_running_requests"] == 2048
    users = plan(service(model=QWEN3_VL_8B, workload=many, engine=engine(max_running_requests=4000)), L40S)
    assert values(users)["max_running_requests"] == 4000


def test_weights_that_attention_groups_have_whole_are_said_not_to_be_counted():
    made = plan(service(parallelism={"tensor": 2}, engine=engine(attn_dp_size=2)))
    assert "attention weights" in finding(made, "MemoryNotCounted").message


def test_a_kv_cache_that_holds_fewer_requests_is_no_promise_and_lowers_the_autoscaler_s_target():
    spec = {"workload": REFERENCE_WORKLOAD | {"inputTokens": 8000}, "scaling": {"minReplicas": 1, "maxReplicas": 2}}
    asked = service(**spec)
    made = plan(asked)
    (limit,) = (s for s in made.settings if s.name == "max_running_requests")
    # Real requests may be shorter, so that the limit stays.
    assert limit.value == 400
    assert limit.reason == (
        f"workload.concurrency is 400, and the KV cache holds about {made.memory.requests} of them: as many run at once as "
        "have room there"
    )
    assert f"about {made.memory.requests} requests" in finding(made, "KvCacheHoldsFewer").message
    target = autoscaler(made, request_of(asked))["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
    assert int(target) == int(made.memory.requests * 0.8) < 320
