"""Which hardware a plan is made for, and what is said about the rest."""

import pytest
from unit.plan.builders import RUNTIME_IMAGE, a100, cluster, images, node, plan, reasons, request_of, service, values

from vlm_api.plan import Severity
from vlm_operator.errors import InvalidInput
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.stored import seal
from vlm_operator.sglang.catalogue.releases import newest


def chosen(made) -> list[str]:
    return made.hardware.nodes


def test_hardware_with_a_profile_is_preferred_and_the_rest_is_named():
    made = plan(None, a100("big"), node("hopper"))
    assert chosen(made) == ["hopper"]
    (other,) = made.hardware.passed_over
    assert other.node == "big"
    assert "other GPUs" in other.reason


def test_hardware_on_which_the_model_fits_comes_before_hardware_with_a_profile():
    small_hopper = node("small", "NVIDIA-H100-80GB-HBM3", 81_559)
    large = node("large", "NVIDIA-B200", 183_359, "10.0")
    model = {"uri": "hf://x/y", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 60}
    assert chosen(plan(service(model=model), small_hopper, large)) == ["large"]


@pytest.mark.parametrize(
    ("many", "few", "billions"),
    [
        (node("many", "NVIDIA-L4", 23_034, "8.9"), node("few", "NVIDIA-A100-PCIE-40GB", 40_960, "8.0", count=1), 8),
        (node("many", "NVIDIA-L40S", 46_068, "8.9"), a100("few", count=1), 21),
    ],
)
def test_weights_alone_do_not_fit_a_gpu_that_has_no_room_for_reserve_and_a_request(many, few, billions):
    model = {"uri": "hf://x/y", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": billions}
    light = images(width=512, height=512) | {"concurrency": 16}
    made = plan(service(model=model, workload=light), many, few)
    assert chosen(made) == ["few"]
    assert made.errors == []
    assert "ModelDoesNotFit" in reasons(plan(service(model=model, workload=light), many))


def test_a_gpu_with_room_to_spare_goes_before_more_of_those_with_hardly_any():
    many, few = node("many", "NVIDIA-A10G", 22_000, "8.6"), node("few", "NVIDIA-L40S", 46_068, "8.9", count=1)
    model = {"uri": "hf://x/y", "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 7}
    light = images(width=512, height=512) | {"concurrency": 16}
    assert "MemoryTight" in reasons(plan(service(model=model, workload=light), many))
    assert chosen(plan(service(model=model, workload=light), many, few)) == ["few"]


def test_among_equals_the_class_with_most_free_devices_is_chosen():
    busy, idle = node("busy", "NVIDIA-H200", 143_771), node("idle")
    made = make_plan(request_of(service()), cluster(busy, idle, in_use={"busy": 7}), runtime_image=RUNTIME_IMAGE)
    assert chosen(made) == ["idle"]


@pytest.mark.parametrize(
    ("hardware", "taken"),
    [
        ({"computeCapability": "8.0"}, ["ampere"]),
        ({"minMemoryMiB": 81_600}, ["ampere"]),
        ({"products": ["NVIDIA-A100-SXM4-80GB"]}, ["ampere"]),
    ],
)
def test_a_wish_of_the_user_decides(hardware, taken):
    assert chosen(plan(service(hardware=hardware), node("hopper"), a100("ampere"))) == taken


def test_hardware_that_a_wish_rules_out_is_not_used_while_the_wished_one_is_missing():
    wish = service(hardware={"products": ["NVIDIA-L40S"]})
    for nodes in ([node("hopper"), a100()], [a100(spec={"unschedulable": True}), node("hopper")]):
        made = seal(plan(wish, *nodes), request_of(wish))
        assert chosen(made.plan) == []
        (term,) = terms(made.pod_template)
        assert term["matchExpressions"] == [
            {
                "key": "nvidia.com/gpu.product",
                "operator": "NotIn",
                "values": ["NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3"],
            }
        ]
    assert "affinity" not in seal(plan(service(), node("plain", count=0)), request_of(service())).pod_template["spec"]


def terms(pod_template) -> list:
    node_affinity = pod_template["spec"]["affinity"]["nodeAffinity"]
    return node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


@pytest.mark.parametrize(
    ("spec", "hardware", "reason", "says"),
    [
        pytest.param(
            {"parallelism": {"tensor": 16}},
            node(),
            "TooManyDevices",
            "8 devices and the pod needs 16",
            id="too many devices",
        ),
        pytest.param(
            {"parallelism": {"tensor": 2}},
            node(labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb"}, memory_mib=40_448, count=16),
            "TensorParallelOverMIG",
            "MIG",
            id="tensor parallelism over MIG slices",
        ),
        pytest.param(
            {"parallelism": {"tensor": 2}},
            node(
                labels={"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
                count=1,
                allocatable=4,
            ),
            "SharesAreNotDevices",
            "1 physical GPU shared",
            id="shares of one card",
        ),
    ],
)
def test_what_can_never_work_on_these_nodes_is_an_error_with_the_numbers(spec, hardware, reason, says):
    made = plan(service(**spec), hardware)
    (error,) = made.errors
    assert error.reason == reason
    assert says in error.message


@pytest.mark.parametrize(
    ("tensor", "data", "version", "devices"),
    [(2, 2, newest(), 2), (8, 8, newest(), 8), (8, 4, "0.5.19", 8)],
)
def test_attention_groups_take_no_gpus_beside_those_of_the_tensor_ranks(tensor, data, version, devices):
    grouped = {"version": version, "settings": {"enable_dp_attention": True}}
    made = plan(service(parallelism={"tensor": tensor, "data": data}, engine=grouped))
    assert made.resources.devices_per_pod == devices
    assert "TooManyDevices" not in reasons(made)
    assert chosen(made) == ["node-0"]


def test_data_ranks_without_such_groups_take_gpus_of_their_own():
    assert plan(service(parallelism={"tensor": 2, "data": 4})).resources.devices_per_pod == 8


@pytest.mark.parametrize(("grouped", "ranks"), [(True, 2), (False, 4)])
def test_ranks_on_the_cpu_are_counted_as_those_on_gpus(grouped, ranks):
    made = plan(
        service(
            hardware={"device": "cpu"},
            parallelism={"tensor": 2, "data": 2},
            engine={"settings": {"enable_dp_attention": grouped}},
        )
    )
    assert made.engine.env["SGLANG_CPU_OMP_THREADS_BIND"].count("|") == ranks - 1
    assert f"each of {ranks} ranks" in made.setting("SGLANG_CPU_OMP_THREADS_BIND").reason


def test_each_data_rank_has_the_weights_in_the_host_s_memory_but_no_group_of_tensor_ranks_does():
    def asked(parallelism, **settings):
        engine = {"settings": settings}
        made = plan(service(hardware={"device": "cpu"}, parallelism=parallelism, engine=engine))
        return made.memory.host_memory_mib

    one = asked({"tensor": 2})
    assert asked({"tensor": 2, "data": 2}, enable_dp_attention=True) == one
    assert asked({"tensor": 2, "data": 2}) - one == pytest.approx(8e9 * 2 / 2**20, abs=256)


def test_without_data_ranks_nothing_is_grouped_and_heads_must_be_split_evenly():
    grouped = {"settings": {"enable_dp_attention": True}}
    (error,) = plan(service(parallelism={"tensor": 3}, engine=grouped)).errors
    assert error.reason == "HeadsNotDivisible"


def test_attention_groups_that_do_not_divide_the_tensor_ranks_are_refused():
    with pytest.raises(InvalidInput, match=r"3 does not divide parallelism\.tensor 8"):
        plan(service(parallelism={"tensor": 8, "data": 3}, engine={"settings": {"enable_dp_attention": True}}))


@pytest.mark.parametrize(("tensor", "instead"), [(3, "2 or 4"), (5, "4 or 8"), (6, "4 or 8")])
def test_heads_that_cannot_be_split_evenly_are_refused_with_the_nearest_numbers_that_can(tensor, instead):
    (error,) = plan(service(parallelism={"tensor": tensor})).errors
    assert error.reason == "HeadsNotDivisible"
    assert error.message.endswith(f"use {instead}")


@pytest.mark.parametrize(
    "spec",
    [
        *({"parallelism": {"tensor": tensor}} for tensor in (1, 2, 4, 8)),
        {"parallelism": {"tensor": 3, "data": 3}, "engine": {"settings": {"enable_dp_attention": True}}},
        {"parallelism": {"tensor": 3}, "hardware": {"device": "cpu"}},
    ],
)
def test_heads_that_can_be_split_or_are_split_otherwise_are_not_refused(spec):
    assert not plan(service(**spec)).errors


def test_without_a_node_the_pods_only_ask_for_the_resource():
    made = plan(None, node(spec={"unschedulable": True}))
    assert reasons(made)[0] == "NoMatchingNodes"
    assert not made.errors
    assert made.hardware.match_labels == {}
    assert made.resources.devices_per_pod == 1
    assert values(made) == {"max_running_requests": 400}


def test_without_a_node_the_gpu_that_the_spec_describes_gets_its_plan():
    made = plan(service(hardware={"computeCapability": "9.0", "minMemoryMiB": 61_440}), node(ready="False"))
    assert made.hardware.source == "spec"
    assert values(made)["mm_feature_transport"] == "cuda_ipc"
    assert not made.errors


def test_a_least_memory_that_is_too_little_is_a_warning_and_refuses_nothing():
    made = plan(service(hardware={"minMemoryMiB": 1000}), node(ready="False"))
    assert "MinMemoryTooLow" in reasons(made)
    assert not made.errors


def test_gpus_of_which_nothing_is_known_get_the_engine_s_defaults_and_a_warning():
    bare = node(product=None, memory_mib=None, capability=None)
    bare["metadata"]["labels"] = {"kubernetes.io/hostname": "node-0"}
    made = plan(None, bare)
    assert {"HardwareUnknown", "MemoryNotChecked"} <= set(reasons(made))
    assert values(made) == {"max_running_requests": 400}


def unlabelled(name="node-0"):
    bare = node(name, product=None, memory_mib=None, capability=None)
    bare["metadata"]["labels"] = {"kubernetes.io/hostname": name}
    return bare


def test_gpus_of_which_no_label_tells_are_what_the_spec_says():
    made = plan(service(hardware={"computeCapability": "9.0", "minMemoryMiB": 80_000}), unlabelled())
    assert chosen(made) == ["node-0"]
    assert (made.hardware.source, made.hardware.memory_mib) == ("spec", 80_000)
    assert values(made)["mm_feature_transport"] == "cuda_ipc"
    assert reasons(made) == ["MediaFromPublicHosts"]
    assert made.runtime.hardware.compute_capability == "9.0"


def test_a_memory_without_a_compute_capability_leaves_unlabelled_gpus_unknown():
    made = plan(service(hardware={"minMemoryMiB": 80_000}), unlabelled())
    assert "HardwareUnknown" in reasons(made)
    assert values(made) == {"max_running_requests": 400}


def test_labels_are_believed_rather_than_the_spec():
    wish = {"computeCapability": "9.0", "minMemoryMiB": 61_440}
    made = plan(service(hardware=wish), unlabelled("bare"), node("told", count=1))
    assert chosen(made) == ["told"]
    assert made.hardware.memory_mib == 81_559


def test_more_nodes_than_there_are_is_a_warning_since_they_may_come():
    made = plan(service(parallelism={"tensor": 16}, multinode={"nodeCount": 2}, workload=images()), node())
    assert reasons(made) == ["GroupDownloads", "TooFewNodes", "MediaFromPublicHosts", "ProfileNotMeasuredHere"]
    assert made.findings[1].severity is Severity.WARNING


def test_a_driver_too_old_for_the_image_is_told_before_the_pod_dies_of_it():
    labels = {"nvidia.com/cuda.driver-version.full": "535.104.05", "nvidia.com/cuda.runtime-version.full": "12.2"}
    made = plan(service(engine={"image": f"lmsysorg/sglang:v{newest()}-cu130"}), node(labels=labels))
    assert reasons(made) == ["DriverTooOld", "MediaFromPublicHosts"]


def test_the_same_gpus_beside_other_processors_are_told_apart_and_pods_are_held_to_the_ones_chosen():
    arm = node("arm", labels={"kubernetes.io/arch": "arm64"}, count=1)
    made = plan(None, arm, node("x86", labels={"kubernetes.io/arch": "amd64"}))
    assert chosen(made) == ["x86"]
    assert [p.reason for p in made.hardware.passed_over] == ["has arm64 processors, and the nodes chosen have amd64"]
    assert made.hardware.match_labels["kubernetes.io/arch"] == "amd64"
    assert "kubernetes.io/arch" not in plan(None, arm).hardware.match_labels


OWN = {"image": "registry.example.com/team/sglang:v0.5.23"}
GRACE = {"kubernetes.io/arch": "arm64"}


def test_processors_that_the_image_is_not_known_for_come_last_and_are_told():
    grace, hopper = node("grace", "NVIDIA-GH200-480GB", 97_871, labels=GRACE), node("x86", count=1)
    mixed = plan(service(engine=OWN), grace, hopper)
    assert chosen(mixed) == ["x86"]
    assert "has arm64 processors and NVIDIA-GH200-480GB" in mixed.hardware.passed_over[0].reason
    assert "the nodes chosen have amd64" in mixed.hardware.passed_over[0].reason
    alone = plan(service(engine=OWN), grace)
    (finding,) = [f for f in alone.findings if f.reason == "ImageForOtherProcessors"]
    assert finding.severity is Severity.WARNING
    assert "node grace has arm64 processors" in finding.message
    assert "ImageForOtherProcessors" not in reasons(plan(None, grace))
    assert "ImageForOtherProcessors" not in reasons(plan(service(engine={"image": f"{OWN['image']}-arm64"}), grace))
    wrong = plan(service(engine={"image": f"{OWN['image']}-arm64"}), hopper)
    assert "ImageForOtherProcessors" in reasons(wrong)


def test_devices_that_are_not_healthy_are_a_state_and_refuse_nothing():
    sick = node("sick", allocatable=7, capacity={"nvidia.com/gpu": "8"})
    whole = service(model={"uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct"}, parallelism={"tensor": 8})
    made = plan(whole, sick)
    (finding,) = [f for f in made.findings if f.reason == "DevicesUnhealthy"]
    assert made.errors == []
    assert "1 of 8 devices of node sick are not healthy" in finding.message
    assert "pods wait" in finding.message
    few = plan(None, sick)
    assert "Pods use the others" in next(f for f in few.findings if f.reason == "DevicesUnhealthy").message
    assert chosen(plan(whole, sick, node("well"))) == ["sick", "well"]
    assert "TooManyDevices" in reasons(plan(whole, node("small", count=7)))


def test_the_same_gpus_with_other_memory_are_told_apart_by_it():
    made = plan(None, node("large"), node("small", memory_mib=70_000, count=1))
    (small,) = made.hardware.passed_over
    assert small.reason == (
        "has other GPUs (NVIDIA-H100-80GB-HBM3, 70,000 MiB) than the ones chosen (NVIDIA-H100-80GB-HBM3, 81,559 MiB)"
    )


def test_devices_that_others_use_now_are_told_and_refuse_nothing():
    made = make_plan(request_of(service()), cluster(node(), in_use={"node-0": 8}), runtime_image=RUNTIME_IMAGE)
    assert reasons(made) == ["DevicesInUse", "MediaFromPublicHosts"]
    assert not made.errors
