"""What works on no cluster is refused at once; sums follow the settings that change them."""

from typing import Any

import pytest
from unit.plan.builders import findings_of, images, node, plan, service

from vlm_operator.errors import InvalidInput
from vlm_operator.sglang.catalogue.releases import newest


def engine(*args: str, **more: Any) -> dict[str, Any]:
    return {"args": list(args), **more}


def env(name: str, value: str) -> dict[str, Any]:
    return engine(env=[{"name": name, "value": value}])


@pytest.mark.parametrize(
    ("spec", "path", "says"),
    [
        ({"engine": engine("--encoder-only")}, "spec.engine.args[0]", "vision encoder's output"),
        ({"engine": engine("--language-only")}, "spec.engine.args[0]", "another engine to encode"),
        ({"engine": engine("--is-embedding")}, "spec.engine.args[0]", "answers no chat request"),
        ({"engine": engine("--skip-tokenizer-init")}, "spec.engine.args[0]", "only token numbers"),
        ({"engine": engine("--smg-grpc-mode")}, "spec.engine.args[0]", "gRPC instead of HTTP"),
        (
            {"engine": engine("--grpc-port", "9"), "security": {"apiKeySecretRef": {"name": "k", "key": "k"}}},
            "spec.engine.args[0]",
            "accepts no API key",
        ),
        ({"engine": engine("--base-gpu-id", "4")}, "spec.engine.args[0]", "the pod has 1 GPU, numbered from 0"),
        (
            {"engine": engine("--gpu-id-step", "2"), "parallelism": {"tensor": 2}},
            "spec.engine.args[0]",
            "the pod has 2 GPUs, numbered from 0",
        ),
        (
            {"engine": engine("--attn-dp-size", "2"), "parallelism": {"tensor": 2, "data": 2}},
            "spec.engine.args[0]",
            "accepts no parallelism.data 2 beside it",
        ),
        ({"engine": env("NVIDIA_VISIBLE_DEVICES", "all")}, "spec.engine.env[0]", "assigns the pod its GPUs"),
        (
            {"engine": env("CUDA_VISIBLE_DEVICES", "0"), "parallelism": {"tensor": 2}},
            "spec.engine.env[0]",
            "must list all 2 GPUs",
        ),
        ({"engine": env("CUDA_VISIBLE_DEVICES", "3")}, "spec.engine.env[0]", "must list all 1 GPU of the pod"),
        ({"engine": env("CUDA_VISIBLE_DEVICES", "")}, "spec.engine.env[0]", "must list all 1 GPU of the pod"),
    ],
)
def test_what_no_cluster_makes_work_is_refused_with_the_step(spec, path, says):
    with pytest.raises(InvalidInput) as refused:
        plan(service(**spec))
    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)
    assert "remove" in str(refused.value)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--mm-process-config", "[1]"], "must be an object of objects"),
        (["--mm-process-config", '{"image": 5}'], "must be an object of objects"),
        (["--limit-mm-data-per-request", "[4]"], "must give whole numbers"),
        (["--limit-mm-data-per-request", '{"image": true}'], "must give whole numbers"),
        (["--attn-dp-size", "3"], "attn_dp_size 3 does not divide parallelism.tensor 1"),
        (["--limit-mm-data-per-request", '{"image": 0}'], "allow one"),
        (
            ["--chunked-prefill-size", "1000", "--page-size", "64"],
            "chunked_prefill_size 1000 must be a multiple of page_size 64",
        ),
    ],
)
def test_values_that_the_engine_asserts_against_are_refused(args, says):
    with pytest.raises(InvalidInput, match=says):
        plan(service(engine=engine(*args)))


EAGLE = ("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "org/draft")
CHAIN = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "1")
TREE = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "4")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--speculative-eagle-topk", "4"], "only together with speculative_num_steps"),
        (["--speculative-num-draft-tokens", "8"], "only together with speculative_num_steps"),
        (["--speculative-num-steps", "3"], "only together with speculative_eagle_topk"),
        (TREE, "only together with speculative_num_draft_tokens"),
        (
            [*TREE, "--speculative-num-draft-tokens", "8", "--attention-backend", "trtllm_mha"],
            "trtllm_mha verifies one draft at a time, and speculative_eagle_topk is 4",
        ),
    ],
)
def test_drafts_that_the_engine_asserts_against_are_refused(args, says):
    with pytest.raises(InvalidInput, match=says):
        plan(service(engine=engine(*EAGLE, *args)))


@pytest.mark.parametrize(
    ("args", "parallelism", "says"),
    [
        (
            ["--speculative-algorithm", "NGRAM"],
            {"pipeline": 2},
            "does not support speculative decoding with pipeline stages",
        ),
        (["--speculative-algorithm", "NGRAM", "--attn-dp-size", "2"], {"tensor": 2}, "with attention groups"),
        (
            ["--speculative-algorithm", "STANDALONE", "--enable-dp-attention"],
            {"tensor": 2, "data": 2},
            "with attention groups",
        ),
    ],
)
def test_models_that_are_spread_as_speculative_decoding_cannot_be_are_refused(args, parallelism, says):
    with pytest.raises(InvalidInput, match=says):
        plan(service(engine=engine(*args), parallelism=parallelism))


@pytest.mark.parametrize(
    "args",
    [
        EAGLE,
        (*EAGLE, *CHAIN),
        (*EAGLE, *TREE, "--speculative-num-draft-tokens", "8"),
        (*EAGLE, "--speculative-adaptive", "--speculative-num-steps", "3"),
        ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8"),
    ],
)
def test_drafts_that_the_engine_takes_are_not_refused(args):
    assert not plan(service(engine=engine(*args))).errors


def test_fewer_images_allowed_than_declared_are_told():
    args = engine("--limit-mm-data-per-request", '{"image": 2}')
    (finding,) = findings_of("ImagesRefused", plan(service(workload=images(perRequest=4), engine=args)))
    assert "have 4 images and the engine is set to accept 2" in finding.message
    assert not findings_of("ImagesRefused", plan(service(workload=images(perRequest=2), engine=args)))


@pytest.mark.parametrize(("plugins", "open_paths"), [("mine", 1), ("mine, vlm_serving", 0), ("", 0)])
def test_a_list_of_plugins_without_ours_leaves_the_control_paths_open(plugins, open_paths):
    assert len(findings_of("ControlPathsOpen", plan(service(engine=env("SGLANG_PLUGINS", plugins))))) == open_paths


@pytest.mark.parametrize("suffix", ["-rocm700-mi30x", "-xeon", "-cann8.3.rc1-910b"])
def test_an_image_for_other_hardware_is_told(suffix):
    made = plan(service(engine={"image": f"lmsysorg/sglang:v{newest()}{suffix}"}))
    assert len(findings_of("ImageForOtherHardware", made)) == 1
    on_the_cpu = plan(service(engine={"image": f"lmsysorg/sglang:v{newest()}{suffix}"}, hardware={"device": "cpu"}))
    assert not findings_of("ImageForOtherHardware", on_the_cpu)


def test_the_engine_s_image_is_set_where_the_plan_reads_it():
    template = {"spec": {"containers": [{"name": "main", "image": "example.com/other:v0.5.9"}]}}
    with pytest.raises(InvalidInput, match=r"set spec\.engine\.image instead"):
        plan(service(template=template))


@pytest.mark.parametrize(("version", "next_one"), [("0.5.10.post2", "0.5.11"), ("0.4.9", "0.5.9"), ("9.0.0", newest())])
def test_an_unknown_version_is_told_with_the_next_known_one(version, next_one):
    (finding,) = findings_of("EngineVersionUnknown", plan(service(engine={"version": version})))
    assert f"use {next_one} or another" in finding.message


@pytest.mark.parametrize(
    "spec",
    [
        {"engine": engine("--base-gpu-id", "0", "--gpu-id-step", "1"), "parallelism": {"tensor": 2}},
        {"engine": engine("--gpu-id-step", "2")},
        {"engine": env("CUDA_VISIBLE_DEVICES", "1,0"), "parallelism": {"tensor": 2}},
        {"engine": env("NVIDIA_VISIBLE_DEVICES", "void"), "hardware": {"device": "cpu"}},
        {"engine": engine("--grpc-port", "9")},
    ],
)
def test_what_works_is_not_refused(spec):
    assert not plan(service(**spec)).errors


BIG = {"uri": "hf://Qwen/Qwen3-VL-32B-Instruct"}
SMALL_CARD = ("l40s", "NVIDIA-L40S", 46_068, "8.9")


def test_weights_that_are_offloaded_to_the_host_are_not_counted_on_the_gpu_but_in_the_pod():
    few = {"concurrency": 2, "images": {"width": 512, "height": 512}}
    made = plan(service(model=BIG, workload=few, engine=engine("--cpu-offload-gb", "40")), node(*SMALL_CARD))
    assert not made.errors
    without = plan(service(model=BIG, workload=few, engine=engine()), node(*SMALL_CARD))
    assert without.errors
    assert without.memory.weights_mib - made.memory.weights_mib == 40 * 1024
    assert made.memory.host_memory_mib - without.memory.host_memory_mib == 40 * 1024


@pytest.mark.parametrize(("method", "share"), [("fp8", 0.5), ("mxfp8", 0.516), ("nvfp4_online", 0.282)])
def test_weights_that_are_quantised_while_loading_are_smaller(method, share):
    whole = plan(service()).memory.weights_mib
    made = plan(service(engine=engine("--quantization", method)))
    assert made.memory.weights_mib == pytest.approx(whole * share, rel=0.01)


def test_the_hierarchical_cache_is_pinned_in_the_pod_s_memory():
    bare = plan(service(engine=engine())).memory
    twice = plan(service(engine=engine("--enable-hierarchical-cache"))).memory
    assert twice.host_memory_mib - bare.host_memory_mib == pytest.approx(2 * bare.kv_cache_mib, abs=256)
    given = plan(service(engine=engine("--enable-hierarchical-cache", "--hicache-size", "100"))).memory
    assert given.host_memory_mib - bare.host_memory_mib == pytest.approx(100e9 / 2**20, abs=256)


def test_a_fraction_that_leaves_too_little_for_activations_is_told_with_one_that_does_not():
    (finding,) = findings_of("ReserveTooSmall", plan(service(engine=engine("--mem-fraction-static", "0.97"))))
    assert "leaves 2,447 MiB of 81,559 MiB" in finding.message
    assert "use 0.8" in finding.message
    assert not findings_of("ReserveTooSmall", plan(service(engine=engine("--mem-fraction-static", "0.8"))))
    assert not findings_of("ReserveTooSmall", plan(service(engine=engine())))


def test_a_kv_cache_too_small_for_one_declared_request_is_told():
    (finding,) = findings_of("ContextTooShort", plan(service(engine=engine("--max-total-tokens", "100"))))
    assert "514 tokens" in finding.message
    assert not findings_of("ContextTooShort", plan(service(engine=engine("--max-total-tokens", "100000"))))


def test_requests_longer_than_the_model_s_own_context_are_told():
    pages = {"inputTokens": 500, "outputTokens": 4000, "images": {"perRequest": 12, "width": 2480, "height": 3508}}
    long = {"model": {"uri": "hf://Qwen/Qwen2.5-VL-7B-Instruct"}, "workload": {"concurrency": 8, **pages}}
    (finding,) = findings_of("ContextTooShort", plan(service(**long)))
    assert "the model takes 128,000" in finding.message
    assert finding.path == "spec.workload"
    changed = engine("--json-model-override-args", '{"max_position_embeddings": 1000000}')
    assert not findings_of("ContextTooShort", plan(service(**long, engine=changed)))


def test_a_context_above_the_model_s_own_would_not_start():
    above = engine(settings={"context_length": 262145})
    (finding,) = findings_of("ContextTooLong", plan(service(engine=above)))
    assert finding.severity == "Error"
    assert "use 262144 or less" in finding.message
    above["settings"]["SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"] = True
    assert not findings_of("ContextTooLong", plan(service(engine=above)))
    assert not findings_of("ContextTooLong", plan(service(engine=engine(settings={"context_length": 262144}))))


def test_a_limited_kv_cache_says_how_many_requests_it_holds():
    (finding,) = findings_of("KvCacheHoldsFewer", plan(service(engine=engine("--max-total-tokens", "51200"))))
    assert "about 100 requests" in finding.message


def resources(**kinds: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "main", "resources": kinds}]}}}


def test_a_memory_limit_below_what_the_pod_asks_for_is_refused_with_both():
    with pytest.raises(InvalidInput, match=r"limits.memory: 4,096 MiB are less than the 9,984 MiB"):
        plan(service(**resources(limits={"memory": "4Gi"})))


def test_a_memory_limit_that_is_too_low_under_load_is_told():
    made = plan(service(**resources(limits={"memory": "8Gi"}, requests={"memory": "4Gi"})))
    (finding,) = findings_of("MemoryLimitTooLow", made)
    assert "8,192 MiB are less than the estimated 9,984 MiB" in finding.message
    assert not findings_of("MemoryLimitTooLow", plan(service(**resources(limits={"memory": "64Gi"}))))


@pytest.mark.parametrize(
    ("labels", "says", "memory_mib"),
    [
        ({"memory_mib": 80}, "label nvidia.com/gpu.memory is 80 and counts MiB", None),
        ({"memory_mib": 85_520_809_984}, "counts MiB", None),
        ({"capability": "8.0"}, "say 8.0, but GPUs named NVIDIA-H100-80GB-HBM3 have 9.0", 81_559),
    ],
)
def test_labels_that_no_card_of_that_name_bears_are_told(labels, says, memory_mib):
    made = plan(None, node(**labels))
    (finding,) = findings_of("AmbiguousLabels", made)
    assert says in finding.message
    assert made.hardware.memory_mib == memory_mib
    assert not made.errors


@pytest.mark.parametrize("memory_mib", [81_559, 79_000, 95_830])
def test_sizes_that_differ_a_little_are_believed(memory_mib):
    made = plan(None, node(memory_mib=memory_mib))
    assert made.hardware.memory_mib == memory_mib
    assert not findings_of("AmbiguousLabels", made)


def small_host(memory: str) -> dict[str, Any]:
    host = node()
    host["status"]["allocatable"]["memory"] = memory
    return host


def test_a_pod_that_asks_for_more_memory_than_its_nodes_have_is_told():
    (finding,) = findings_of("NodeMemoryTooSmall", plan(None, small_host("8Gi")))
    assert "requests 9,984 MiB of memory and the largest of these nodes has 8,192" in finding.message
    assert not findings_of("NodeMemoryTooSmall", plan(None, small_host("16Gi")))
    assert not findings_of("NodeMemoryTooSmall", plan(None, small_host("?")))
    less = service(**resources(requests={"memory": "4Gi"}))
    assert not findings_of("NodeMemoryTooSmall", plan(less, small_host("8Gi")))


def test_what_takes_memory_and_is_not_counted_is_told():
    args = engine("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "a/b")
    (finding,) = findings_of("MemoryNotCounted", plan(service(engine=args)))
    assert "the draft model's weights and cache" in finding.message
