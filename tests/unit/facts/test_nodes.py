"""Facts about a node's GPUs from its labels."""

import random

import pytest

from vlm_api.plan import Sharing
from vlm_operator.facts.nodes.node import node_facts
from vlm_operator.facts.types import Taint

GPU = "nvidia.com/gpu"


def discovered(product: str | None, memory: int | None, capability: str, count: int = 8, **more: str) -> dict[str, str]:
    """Labels as GPU feature discovery writes them; ``more`` adds labels."""
    major, minor = capability.split(".")
    labels = {
        f"{GPU}.product": product,
        f"{GPU}.memory": None if memory is None else str(memory),
        f"{GPU}.compute.major": major,
        f"{GPU}.compute.minor": minor,
        f"{GPU}.count": str(count),
        f"{GPU}.replicas": "1",
        f"{GPU}.sharing-strategy": "none",
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        "nvidia.com/cuda.runtime-version.full": "13.0",
        "nvidia.com/gfd.timestamp": "1724632719",
    }
    return {key: value for key, value in labels.items() if value is not None} | more


def node(labels=None, allocatable=None, capacity=None, **spec):
    allocatable = {GPU: "8"} if allocatable is None else allocatable
    return {
        "metadata": {"name": "node-1", "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": allocatable, "capacity": allocatable if capacity is None else capacity},
    }


H100 = discovered("NVIDIA-H100-80GB-HBM3", 81559, "9.0")


@pytest.mark.parametrize(
    ("product", "memory", "capability"),
    [
        ("NVIDIA-H100-80GB-HBM3", 81559, "9.0"),
        ("NVIDIA-GH200-480GB", 97871, "9.0"),
        ("NVIDIA-L40S", 46068, "8.9"),
        ("NVIDIA-B300-SXM6-AC", 275040, "10.3"),
        ("Tesla-T4", 15109, "7.5"),
    ],
)
def test_labels_of_gpu_feature_discovery_are_used_unchanged(product, memory, capability):
    gpu = node_facts(node(discovered(product, memory, capability))).gpu
    assert (gpu.product, gpu.memory_mib, str(gpu.compute_capability)) == (product, memory, capability)
    assert (gpu.source, gpu.devices, gpu.sharing) == ("gfd", 8, Sharing.NONE)
    assert (gpu.driver, gpu.cuda) == ("580.95.05", (13, 0))
    assert gpu.ambiguous is None


def test_pods_select_capability_and_memory_without_a_product_label():
    gpu = node_facts(node(discovered(None, 81559, "9.0"))).gpu
    assert gpu.product is None
    assert str(gpu.compute_capability) == "9.0"
    assert gpu.match_labels == {
        f"{GPU}.compute.major": "9",
        f"{GPU}.compute.minor": "0",
        f"{GPU}.memory": "81559",
    }


def test_the_capability_comes_from_the_product_without_capability_labels():
    labels = {key: value for key, value in H100.items() if "compute" not in key}
    assert str(node_facts(node(labels)).gpu.compute_capability) == "9.0"


def test_gpus_without_labels_are_counted_without_further_facts():
    gpu = node_facts(node()).gpu
    assert (gpu.source, gpu.devices, gpu.allocatable) == ("unknown", 8, 8)
    assert (gpu.product, gpu.compute_capability, gpu.memory_mib, dict(gpu.match_labels)) == (None, None, None, {})


def test_empty_labels_on_a_node_without_gpus_are_ignored():
    labels = {"gpu.nvidia.com/class": "", "gpu.nvidia.com/count": "", "cloud.google.com/gke-accelerator": ""}
    facts = node_facts(node(labels, allocatable={"cpu": "8"}))
    assert (facts.gpu, facts.unusable) == (None, None)


# --- sharing ------------------------------------------------------------------------------------------------------


def test_a_mig_slice_has_its_own_memory_and_the_capability_of_its_gpu():
    labels = discovered("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 9984, "9.0", count=56) | {
        "nvidia.com/mig.strategy": "single"
    }
    gpu = node_facts(node(labels, {GPU: "56"})).gpu
    assert (gpu.sharing, gpu.memory_mib, gpu.devices) == (Sharing.MIG, 9984, 56)
    assert str(gpu.compute_capability) == "9.0"


def test_a_mig_slice_is_detected_by_its_slice_label_without_a_product_label():
    labels = discovered(None, 24000, "12.0", count=4)
    labels |= {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.slices.gi": "1"}
    assert node_facts(node(labels, {GPU: "4"})).gpu.sharing is Sharing.MIG


def test_the_mig_strategy_alone_does_not_mean_a_slice():
    assert node_facts(node(H100 | {"nvidia.com/mig.strategy": "single"})).gpu.sharing is Sharing.NONE


def test_an_invalid_mig_layout_makes_the_gpu_unusable_with_a_next_step():
    labels = discovered("NVIDIA-A100-SXM4-40GB-MIG-INVALID", 0, "8.0", count=0)
    labels |= {f"{GPU}.replicas": "0", f"{GPU}.sharing-strategy": ""}
    facts = node_facts(node(labels, {GPU: "0"}))
    assert "MIG" in facts.unusable
    assert "same profile" in facts.unusable
    assert (facts.gpu.devices, facts.gpu.memory_mib) == (0, None)


def test_slices_of_the_mixed_strategy_have_their_own_resource_and_labels():
    prefix = "nvidia.com/mig-3g.20gb"
    labels = discovered("NVIDIA-A100-SXM4-40GB", 40960, "8.0", count=2) | {
        "nvidia.com/mig.strategy": "mixed",
        f"{prefix}.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
        f"{prefix}.memory": "19968",
        f"{prefix}.count": "4",
    }
    offered = node(labels, {prefix: "4", GPU: "0"})
    gpu = node_facts(offered, resource_name=prefix).gpu
    assert (gpu.sharing, gpu.memory_mib, gpu.devices) == (Sharing.MIG, 19968, 4)
    assert gpu.match_labels == {f"{prefix}.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"}
    assert "spec.hardware.resourceName" in node_facts(offered).unusable
    assert prefix in node_facts(offered).unusable


@pytest.mark.parametrize(
    ("strategy", "sharing", "memory_mib"),
    [
        ("time-slicing", Sharing.TIME_SLICING, 23034),
        ("mps", Sharing.MPS, 23034 // 4),
        ("none", Sharing.TIME_SLICING, 23034),
    ],
)
def test_four_shares_of_one_gpu_are_one_gpu(strategy, sharing, memory_mib):
    labels = discovered("NVIDIA-L4-SHARED", 23034, "8.9", count=1)
    labels |= {f"{GPU}.replicas": "4", f"{GPU}.sharing-strategy": strategy}
    gpu = node_facts(node(labels, {GPU: "4"})).gpu
    assert (gpu.sharing, gpu.devices, gpu.allocatable, gpu.memory_mib) == (sharing, 1, 4, memory_mib)
    assert gpu.ambiguous is None


def test_a_renamed_shared_resource_is_named_if_the_default_one_is_requested():
    labels = discovered("NVIDIA-L4", 23034, "8.9", count=1)
    labels |= {f"{GPU}.replicas": "4", f"{GPU}.sharing-strategy": "time-slicing"}
    offered = node(labels, {f"{GPU}.shared": "4"})
    assert f"{GPU}.shared" in node_facts(offered).unusable
    shared = node_facts(offered, resource_name=f"{GPU}.shared")
    assert (shared.unusable, shared.gpu.devices, shared.gpu.sharing) == (None, 1, Sharing.TIME_SLICING)


# --- ambiguous labels and unusable GPUs ---------------------------------------------------------------------------

FOUR_A100 = discovered("NVIDIA-A100-SXM4-80GB", 81920, "8.0", count=4)
VFIO = H100 | {f"{GPU}.compute.major": "-1", f"{GPU}.compute.minor": "-1"}


@pytest.mark.parametrize(
    ("labels", "allocatable", "capacity", "says"),
    [
        (FOUR_A100, {GPU: "5"}, None, "more than one GPU model"),
        (FOUR_A100, {GPU: "4"}, {GPU: "5"}, "more than one GPU model"),
        (H100 | {"nvidia.com/mig.config.state": "pending"}, None, None, "pending"),
        (VFIO, None, None, "vfio"),
    ],
    ids=["more devices than labelled", "more devices, one unhealthy", "a changing MIG layout", "vfio"],
)
def test_labels_that_may_not_describe_every_device_are_ambiguous(labels, allocatable, capacity, says):
    assert says in node_facts(node(labels, allocatable, capacity)).gpu.ambiguous


def test_an_unhealthy_device_reduces_the_devices_without_ambiguity():
    gpu = node_facts(node(H100, {GPU: "7"}, {GPU: "8"})).gpu
    assert (gpu.devices, gpu.unhealthy, gpu.present, gpu.ambiguous) == (7, 1, 8, None)


SLICE = "nvidia.com/mig-1g.10gb"
SLICES = H100 | {
    "nvidia.com/mig.strategy": "mixed",
    f"{SLICE}.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
    f"{SLICE}.count": "1",
    f"{SLICE}.memory": "9984",
    f"{SLICE}.replicas": "4",
    f"{SLICE}.sharing-strategy": "time-slicing",
}


@pytest.mark.parametrize("resource", [SLICE, f"{SLICE}.shared"])
def test_slices_may_be_time_sliced_under_either_name_of_the_resource(resource):
    gpu = node_facts(node(SLICES, {resource: "4"}), resource_name=resource).gpu
    assert (gpu.sharing, gpu.time_sliced, gpu.devices, gpu.memory_mib) == (Sharing.MIG, True, 1, 9984)
    plain = SLICES | {f"{SLICE}.replicas": "1", f"{SLICE}.sharing-strategy": "none"}
    assert not node_facts(node(plain, {SLICE: "1"}), resource_name=SLICE).gpu.time_sliced


def test_a_resource_that_is_named_shared_is_shared_without_any_label():
    gpu = node_facts(node({}, {f"{GPU}.shared": "4"}), resource_name=f"{GPU}.shared").gpu
    assert (gpu.sharing, gpu.time_sliced) == (Sharing.TIME_SLICING, True)


def test_a_gpu_for_virtual_machines_has_no_capability_even_with_a_known_product():
    assert node_facts(node(VFIO)).gpu.compute_capability is None


@pytest.mark.parametrize(
    ("labels", "allocatable", "capacity", "says"),
    [
        (H100, {}, {}, "device plugin"),
        (H100, {GPU: "0"}, {GPU: "8"}, "healthy"),
        (VFIO, {}, {}, "vfio"),
        ({"feature.node.kubernetes.io/pci-10de.present": "true"}, {}, {}, "device plugin"),
        ({}, {"amd.com/gpu": "8"}, None, "it offers amd.com/gpu"),
    ],
    ids=["no device plugin", "no healthy device", "for virtual machines", "PCI label only", "another vendor"],
)
def test_gpus_without_an_allocatable_resource_are_unusable(labels, allocatable, capacity, says):
    assert says in node_facts(node(labels, allocatable, capacity)).unusable


# --- the node itself ----------------------------------------------------------------------------------------------


def test_cordon_taints_readiness_and_architecture_come_from_the_node():
    raw = node(
        H100 | {"kubernetes.io/arch": "arm64"},
        unschedulable=True,
        taints=[{"key": GPU, "value": "present", "effect": "NoSchedule"}, {"key": "team", "effect": "NoExecute"}],
    )
    raw["status"]["conditions"] = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Ready", "status": "Unknown"},
    ]
    facts = node_facts(raw)
    assert (facts.name, facts.cordoned, facts.ready, facts.cpu_architecture) == ("node-1", True, False, "arm64")
    assert facts.taints == (Taint(GPU, "present", "NoSchedule"), Taint("team", "", "NoExecute"))


def test_the_deprecated_labels_of_driver_and_cuda_version_are_read():
    parts = {
        "driver.major": "535",
        "driver.minor": "104",
        "driver.rev": "05",
        "runtime.major": "12",
        "runtime.minor": "2",
    }
    labels = {f"nvidia.com/cuda.{part}": value for part, value in parts.items()}
    gpu = node_facts(node(labels | {f"{GPU}.product": "NVIDIA-L4"})).gpu
    assert (gpu.driver, gpu.cuda) == ("535.104.05", (12, 2))


@pytest.mark.parametrize(
    ("amount", "devices"),
    [
        (8, 8),
        ("8", 8),
        ("8k", 8000),
        ("1e1", 10),
        ("2Ki", 2048),
        ("500m", 0),
        ("-3", 0),
        ("many", 0),
        (None, 0),
        (True, 0),
    ],
)
def test_devices_are_counted_in_every_format_of_a_quantity(amount, devices):
    gpu = node_facts(node(allocatable={GPU: amount})).gpu
    assert (gpu.allocatable if gpu else 0) == devices


# --- properties ---------------------------------------------------------------------------------------------------

KEYS = sorted(
    {
        *H100,
        f"{GPU}.family",
        "nvidia.com/mig.strategy",
        "nvidia.com/mig.config.state",
        "nvidia.com/gpu.slices.gi",
        "nvidia.com/cuda.driver.major",
        "cloud.google.com/gke-accelerator",
        "cloud.google.com/gke-accelerator-count",
        "cloud.google.com/gke-gpu-sharing-strategy",
        "cloud.google.com/gke-max-shared-clients-per-gpu",
        "gpu.nvidia.com/class",
        "gpu.nvidia.com/vram",
        "karpenter.k8s.aws/instance-gpu-name",
        "karpenter.k8s.aws/instance-gpu-memory",
        "kubernetes.azure.com/accelerator",
        "node.kubernetes.io/instance-type",
    }
)
VALUES = [
    "",
    " ",
    "-1",
    "0",
    "8",
    "81559",
    "9.0",
    "nvidia",
    "H100_NVLINK_80GB",
    "NVIDIA-L4-MIG-INVALID",
    "none",
    "single",
]
VALUES += ["time-sharing", "9" * 40, "nan", "1e400", "٣", "Ω" * 70, "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", "\x00"]
JUNK = [-5, 0, 8, 10**12, 1.5, True, None, "8", "8k", "1e99", "-1", "", "8x", "0.5", [], {"a": [None]}, float("nan")]


@pytest.mark.parametrize("seed", range(10))
def test_no_input_raises_an_error_or_exceeds_the_allocatable_devices(seed):
    chance = random.Random(seed)
    for _ in range(200):
        labels = {key: chance.choice(VALUES) for key in chance.sample(KEYS, chance.randint(0, 8))}
        offered, capacity, slices = chance.choice(JUNK), chance.choice(JUNK), chance.sample(JUNK, chance.randint(0, 2))
        facts = node_facts(node(labels, {GPU: offered}, {GPU: capacity}), slices)
        if facts.gpu is not None:
            assert 0 <= facts.gpu.devices <= facts.gpu.allocatable
            assert facts.gpu.memory_mib is None or facts.gpu.memory_mib > 0
            assert facts.gpu.compute_capability is None or facts.gpu.compute_capability.major > 0
            assert all(labels[key] for key in facts.gpu.match_labels)
            assert facts.gpu.allocatable > 0 or facts.unusable


@pytest.mark.parametrize(("amount", "memory_mib"), [("16Gi", 16384), ("16777216Ki", 16384), ("?", None), (None, None)])
def test_a_node_s_memory_is_read_in_every_unit(amount, memory_mib):
    assert node_facts(node({}, {"memory": amount})).memory_mib == memory_mib
