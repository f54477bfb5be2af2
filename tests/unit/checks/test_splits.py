"""Splits that the engine asserts against are refused before a pod starts, for every model whose facts are known."""

import re
from dataclasses import replace

import pytest
from unit.plan.builders import RUNTIME_IMAGE, cluster, node, plan, request_of, service

from vlm_api.plan import ServingPlan
from vlm_operator.facts.types import ModelFacts
from vlm_operator.plan.make import make_plan
from vlm_operator.sglang.splits import Split, problems

GEMMA = ModelFacts(
    architecture="Gemma3ForConditionalGeneration",
    parameters=12e9,
    layers=48,
    attention_heads=16,
    kv_heads=8,
    head_size=256,
    vision_heads=16,
)


def of(model_id: str, **spec: object) -> ServingPlan:
    nodes = [node(f"n{i}") for i in range(4)]
    return plan(service(model={"uri": f"hf://{model_id}"}, **spec), *nodes)


@pytest.mark.parametrize(
    ("model_id", "spec", "reason", "says"),
    [
        pytest.param(
            "Qwen/Qwen2.5-VL-7B-Instruct",
            {"parallelism": {"tensor": 8}},
            "HeadsNotDivisible",
            "28 attention heads cannot be split evenly over parallelism.tensor 8, so the engine would not start: use 4",
            id="query heads, though the key-value heads would divide",
        ),
        pytest.param(
            "Qwen/Qwen3-VL-32B-Instruct",
            {"parallelism": {"tensor": 32}, "multinode": {"nodeCount": 4}},
            "HeadsNotDivisible",
            "16 heads of the vision encoder",
            id="heads of the vision encoder",
        ),
        pytest.param(
            "Qwen/Qwen3-VL-2B-Instruct",
            {"parallelism": {"pipeline": 32}, "multinode": {"nodeCount": 4}},
            "TooFewLayers",
            "28 layers are fewer than the 32 stages of parallelism.pipeline, "
            "so the engine would not start: lower it to 28 or below",
            id="more stages than layers",
        ),
        pytest.param(
            "Qwen/Qwen3-VL-30B-A3B-Instruct-FP8",
            {"parallelism": {"tensor": 4}},
            "BlocksNotDivisible",
            "the model's experts of width 768 in fp8 blocks of 128",
            id="experts in blocks",
        ),
        pytest.param(
            "Qwen/Qwen3-VL-4B-Instruct-FP8",
            {"parallelism": {"tensor": 8}},
            "BlocksNotDivisible",
            "the model's feed-forward layers of width 9,728 in fp8 blocks of 128",
            id="dense layers in blocks",
        ),
        pytest.param(
            "Qwen/Qwen3-VL-30B-A3B-Instruct",
            {"parallelism": {"tensor": 4}, "engine": {"settings": {"ep_size": 3}}},
            "ExpertsNotDivisible",
            "use 1 or 2 or 4",
            id="experts over ranks that do not divide the tensor ranks",
        ),
    ],
)
def test_a_split_that_the_engine_refuses_is_an_error_with_what_would_work(model_id, spec, reason, says):
    (error,) = of(model_id, **spec).errors
    assert error.reason == reason
    assert says in error.message


@pytest.mark.parametrize(
    ("model_id", "spec"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"parallelism": {"tensor": 4}}),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct-FP8", {"parallelism": {"tensor": 2}}),
        (
            "Qwen/Qwen3-VL-30B-A3B-Instruct-FP8",
            {"parallelism": {"tensor": 4}, "engine": {"settings": {"ep_size": 4}}},
        ),
        (
            "Qwen/Qwen3-VL-32B-Instruct",
            {
                "parallelism": {"tensor": 32},
                "multinode": {"nodeCount": 4},
                "engine": {"settings": {"mm_enable_dp_encoder": True}},
            },
        ),
        (
            "Qwen/Qwen2.5-VL-7B-Instruct",
            {"parallelism": {"tensor": 8}, "engine": {"settings": {"attn_dp_size": 2}}},
        ),
        ("Qwen/Qwen3-VL-2B-Instruct", {"parallelism": {"pipeline": 28}, "multinode": {"nodeCount": 4}}),
    ],
)
def test_a_split_that_the_engine_takes_is_not_refused(model_id, spec):
    assert not of(model_id, **spec).errors


def test_a_model_of_no_known_family_is_checked_by_what_its_own_files_say():
    a_service = service(model={"uri": "hf://google/gemma-3-12b-it"}, parallelism={"tensor": 3})
    made = make_plan(request_of(a_service), cluster(node()), runtime_image=RUNTIME_IMAGE, inspected=GEMMA)
    (error,) = made.errors
    assert error.message == (
        "the model's 16 attention heads and 8 key-value heads and 16 heads of the vision encoder cannot be split evenly over "
        "parallelism.tensor 3, "
        "so the engine would not start: use 2 or 4"
    )


def test_an_encoder_that_fills_its_heads_up_is_not_refused():
    # InternVL pads them: 25 heads of the vision encoder serve on 2 ranks.
    model = ModelFacts(architecture="InternVLChatModel", attention_heads=16, kv_heads=8, vision_heads=25)
    assert not list(problems(model, Split(tensor=2, vision=False)))


def test_what_is_not_known_refuses_nothing():
    assert not list(problems(ModelFacts(), Split(tensor=7, pipeline=99, expert=5)))


@pytest.mark.parametrize(
    ("model_id", "card", "says"),
    [
        # Three devices would hold it, but its 32 heads divide over two and four.
        ("Qwen/Qwen3-VL-8B-Instruct", ("NVIDIA-L4", 12_288, "8.9"), "on 4 devices (parallelism.tensor: 4)"),
        # Sixteen devices are two nodes of eight.
        (
            "Qwen/Qwen3-VL-235B-A22B-Instruct",
            ("NVIDIA-A100-SXM4-40GB", 40_960, "8.0"),
            "on 16 devices (parallelism.tensor: 16, multinode.nodeCount: 2)",
        ),
    ],
)
def test_what_would_fit_names_only_numbers_that_the_model_can_be_split_over(model_id, card, says):
    product, memory_mib, capability = card
    a_service = service(model={"uri": f"hf://{model_id}"}, workload={"concurrency": 2})
    (error,) = plan(a_service, node("n", product, memory_mib, capability)).errors
    assert error.reason == "ModelDoesNotFit"
    assert says in error.message


@pytest.mark.parametrize(("settings", "data"), [({"enable_dp_attention": True}, 2), ({"attn_dp_size": 2}, 1)])
def test_what_would_fit_counts_no_devices_for_groups_that_share_those_of_the_tensor_ranks(settings, data):
    a_service = service(
        model={"uri": "hf://Qwen/Qwen3-VL-30B-A3B-Instruct"},
        workload={"concurrency": 2},
        parallelism={"tensor": 2, "data": data},
        engine={"settings": settings},
    )
    (error,) = plan(a_service, node("n", "NVIDIA-L4", 23_034, "8.9", count=8)).errors
    assert "it would fit on 8 devices (parallelism.tensor: 8)" in error.message
    assert "nodeCount" not in error.message


def test_what_would_fit_names_no_second_node_beside_data_ranks_which_need_one():
    model = {"uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct"}
    a_service = service(model=model, workload={"concurrency": 2}, parallelism={"tensor": 2, "data": 4})
    (error,) = plan(a_service, node()).errors
    assert "enough on one node beside parallelism.data 4: lower that" in error.message
    assert "nodeCount" not in error.message


def test_what_would_fit_keeps_the_stages_that_are_declared():
    a_service = service(
        model={"uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct"}, workload={"concurrency": 2}, parallelism={"pipeline": 2}
    )
    (error,) = plan(a_service, node()).errors
    assert "on 8 devices (parallelism.tensor: 4)" in error.message


@pytest.mark.parametrize(
    ("tensor", "cut"),
    [
        (1, False),
        (2, True),  # 115.5 groups of 128
        (3, False),
    ],
)
def test_a_group_of_weights_that_share_a_scale_is_not_cut(tensor: int, cut: bool):
    model = ModelFacts(architecture="A", feed_forward_size=29_568, quantised_group=128)
    clauses = [problem.clause for problem in problems(model, Split(tensor=tensor))]
    assert clauses == ["feed-forward layers of width 29,568 in groups of 128 weights that share a scale"] * cut


@pytest.mark.parametrize(("tensor", "told"), [(1, []), (2, ["Info"]), (3, ["Warning"])])
def test_a_split_of_unknown_heads_is_told(tensor: int, told: list[str]):
    made = of("someone/their-model", parallelism={"tensor": tensor})
    assert [f.severity.value for f in made.findings if f.reason == "SplitNotChecked"] == told


def test_of_unknown_heads_only_powers_of_two_are_advised():
    made = plan(
        service(model={"uri": "hf://someone/theirs", "parametersBillion": 38}),
        node(product="NVIDIA-L40S", memory_mib=46_068, capability="8.9"),
    )
    (refusal,) = [f.message for f in made.errors]
    assert "parallelism.tensor: 4" in refusal or "parallelism.tensor: 2" in refusal


AWQ = ModelFacts(
    architecture="InternVLChatModel",
    parameters=104e9,
    bytes_per_parameter=0.5,
    layers=80,
    attention_heads=64,
    kv_heads=8,
    head_size=128,
    feed_forward_size=29_568,
    quantised_group=128,
)


def test_a_split_that_works_and_does_not_fit_is_not_named():
    model = replace(AWQ, parameters=300e9)
    a_service = service(model={"uri": "pvc://models/awq"}, parallelism={"tensor": 2}, workload={"concurrency": 1})
    made = make_plan(request_of(a_service), cluster(node()), runtime_image=RUNTIME_IMAGE, inspected=model)
    assert [e.message.rpartition(": ")[2] for e in made.errors if e.reason == "BlocksNotDivisible"] == [
        "use another model or another split"
    ]


def test_experts_in_groups_are_not_refused_since_the_engine_has_a_kernel_that_halves_them():
    assert not list(problems(ModelFacts(experts=128, expert_size=768, quantised_group=128), Split(tensor=4)))


@pytest.mark.parametrize("card", [("NVIDIA-L4", 23_034, "8.9"), ("NVIDIA-H100-80GB-HBM3", 81_559, "9.0")], ids=str)
@pytest.mark.parametrize(
    "model",
    [
        *(
            ModelFacts(parameters=4e11, bytes_per_parameter=bytes_each, layers=80, kv_heads=8, head_size=128, **more)
            for bytes_each in (0.5, 1.0, 2.0)
            for more in ({}, {"attention_heads": 40, "feed_forward_size": 27_648}, {"attention_heads": 96})
        ),
        replace(AWQ, parameters=4e11, feed_forward_size=29_696),
        ModelFacts(parameters=76e9, layers=64, attention_heads=40, kv_heads=8, head_size=128),
        ModelFacts(
            parameters=6e10, layers=48, attention_heads=32, kv_heads=4, head_size=128, experts=128, expert_size=768
        ),
    ],
)
def test_what_would_fit_is_not_refused_when_it_is_planned(model, card):
    product, memory_mib, capability = card
    nodes = [node(f"n{i}", product, memory_mib, capability) for i in range(16)]

    def planned(**spec):
        a_service = service(model={"uri": "pvc://models/own"}, workload={"concurrency": 2}, **spec)
        return make_plan(request_of(a_service), cluster(*nodes), runtime_image=RUNTIME_IMAGE, inspected=facts)

    facts = replace(model, evidence="config.json")
    message = planned().errors[0].message
    said = re.search(
        r"it would fit on [^(]*\(parallelism.tensor: (\d+)(?:, multinode.nodeCount: (\d+))?\)(.*)",
        message,
    )
    if said is None:
        assert "no number of such devices is enough" in message
        return
    tensor, nodes_each, more = int(said[1]), int(said[2] or 1), said[3]
    if " with fp8 weights" in more and ", or on" not in more:
        facts = replace(facts, bytes_per_parameter=1.0, quantised_block=128)
    again = planned(parallelism={"tensor": tensor}, multinode={"nodeCount": nodes_each})
    assert not again.errors, again.errors
    # Where the heads are unknown, a number that divides none is not proposed.
    assert tensor & (tensor - 1) == 0 or model.attention_heads is not None


def test_fewer_devices_with_fp8_weights_are_those_that_their_blocks_divide_over():
    # Four ranks would cut the blocks of 768 / 4 = 192 weights.
    a_service = service(
        model={"uri": "hf://Qwen/Qwen3-VL-30B-A3B-Instruct"}, workload={"concurrency": 2}, parallelism={"tensor": 1}
    )
    (error,) = plan(a_service, node("n", "NVIDIA-L4", 12_288, "8.9", count=8)).errors
    assert "with fp8 weights" not in error.message
