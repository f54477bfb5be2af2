"""A vGPU is never mistaken for a bare GPU, and a node for virtual machines never for one for pods."""

from typing import Any

import pytest
from unit.plan.builders import node, plan, request_of, service, values

from vlm_api.plan import Finding, Severity
from vlm_operator.plan.stored import seal

VIRTUAL = {"nvidia.com/vgpu.present": "true", "nvidia.com/vgpu.host-driver-version": "580.95.02"}


def vgpu(name: str = "guest", product: str = "NVIDIA-H100XM-80C", **more: Any) -> dict[str, Any]:
    return node(name, product, 81_920, "9.0", labels=VIRTUAL | more.pop("labels", {}), **{"count": 1, **more})


def virtual(made: Any) -> Finding:
    (finding,) = [f for f in made.findings if f.reason == "VirtualGpu"]
    return finding


def test_the_measured_set_of_bare_gpus_is_not_applied_and_the_plan_says_why():
    made = plan(None, vgpu())
    assert "prefill_decode_interval" not in values(made)
    reason = next(s.reason for s in made.settings if s.name == "prefill_decode_interval")
    assert reason == "the profile is for GPUs of the machine itself, and these are virtual ones (vGPU)"
    assert virtual(made).severity is Severity.INFO


def test_the_engine_s_own_cuda_ipc_is_taken_back():
    # SGLang 0.5.20 and later choose it on every Hopper GPU of this size.
    assert values(plan(None, vgpu()))["mm_feature_transport"] == "cpu"
    assert "SGLANG_MM_FEATURE_CACHE_MB" not in values(plan(None, vgpu()))


def test_cuda_ipc_that_the_user_chose_is_kept_and_warned_of():
    made = plan(service(engine={"settings": {"mm_feature_transport": "cuda_ipc"}}), vgpu())
    assert values(made)["mm_feature_transport"] == "cuda_ipc"
    assert virtual(made).severity is Severity.WARNING
    assert virtual(made).path == "spec.engine.settings.mm_feature_transport"


def test_several_virtual_gpus_are_warned_of_since_they_do_not_reach_each_other_directly():
    made = plan(service(parallelism={"tensor": 2}), vgpu(count=2))
    assert virtual(made).severity is Severity.WARNING
    assert "only over NVLink" in virtual(made).message


def test_a_virtual_gpu_s_memory_is_its_own_part_of_the_card_and_never_guessed_from_the_card_s_name():
    small = {"product": "NVIDIA-A100-10C", "capability": "8.0", "count": 1, "labels": VIRTUAL}
    a_service = service(model={"uri": "hf://Qwen/Qwen3-VL-2B-Instruct"})
    assert plan(a_service, node("guest", memory_mib=10_240, **small)).hardware.memory_mib == 10_240
    assert plan(a_service, node("guest", memory_mib=None, **small)).hardware.memory_mib is None


@pytest.mark.parametrize("product", ["NVIDIA-H100XM-80C", "NVIDIA-H100-80GB-HBM3"])
def test_bare_gpus_are_preferred_and_pods_are_held_to_the_kind_that_was_planned_for(product):
    made = plan(None, vgpu(product=product, count=8), node("bare"))
    assert made.hardware.nodes == ["bare"]
    (other,) = made.hardware.passed_over
    assert "virtual" in other.reason
    alone = seal(plan(None, vgpu(product=product)), request_of(service()))
    affinity = alone.pod_template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    expressions = affinity["nodeSelectorTerms"][0]["matchExpressions"]
    assert {"key": "nvidia.com/vgpu.present", "operator": "In", "values": ["true"]} in expressions


@pytest.mark.parametrize("config", ["vm-passthrough", "vm-vgpu"])
def test_a_node_for_virtual_machines_is_passed_over_with_its_reason(config):
    for labels in ({}, {"feature.node.kubernetes.io/pci-10de.present": "true"}):
        host = node("host", None, None, None, count=0)
        host["metadata"]["labels"] = labels | {"nvidia.com/gpu.workload.config": config}
        host["status"]["allocatable"] = {"cpu": "64", "nvidia.com/GH100_H100_SXM5_80GB": "8"}
        (passed,) = plan(None, host).hardware.passed_over
        assert passed.reason == (
            f"its GPUs are for virtual machines (label nvidia.com/gpu.workload.config is {config}): "
            "set the label to container to serve on it"
        )


def test_a_node_for_containers_is_used():
    assert plan(None, node(labels={"nvidia.com/gpu.workload.config": "container"})).hardware.nodes == ["node-0"]
    assert plan(None, node(labels={"nvidia.com/vgpu.present": "false"})).hardware.match_labels == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"
    }


def shared(strategy: str, **more: Any) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": strategy}
    return node("shared", "NVIDIA-H100-80GB-HBM3-SHARED", labels=labels, count=8, allocatable=32, **more)


def test_under_mps_each_client_has_an_equal_part_of_the_card_s_memory():
    made = plan(service(model={"uri": "hf://Qwen/Qwen3-VL-2B-Instruct"}), shared("mps"))
    assert made.hardware.memory_mib == 81_559 // 4
    assert not made.errors
    (error,) = plan(service(model={"uri": "hf://Qwen/Qwen3-VL-32B-Instruct"}), shared("mps")).errors
    assert "of 20,389 MiB" in error.message


def test_under_mps_there_may_be_two_shared_memories_which_is_told():
    made = plan(service(model={"uri": "hf://Qwen/Qwen3-VL-2B-Instruct"}), shared("mps"))
    (finding,) = [f for f in made.findings if f.reason == "MpsSharedMemory"]
    assert "/dev/shm" in finding.message
    assert "by MIG" in finding.message
    assert not [f for f in plan(None, shared("time-slicing")).findings if f.reason == "MpsSharedMemory"]


def test_time_slicing_divides_no_memory_which_is_told():
    made = plan(None, shared("time-slicing"))
    assert made.hardware.memory_mib == 81_559
    (finding,) = [f for f in made.findings if f.reason == "GpuShared"]
    assert "up to 4 pods share a GPU" in finding.message
    assert "share the GPU by MIG or MPS" in finding.message
    assert "mem_fraction_static does not divide it either" in finding.message
