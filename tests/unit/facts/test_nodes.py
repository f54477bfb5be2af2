"""What a node's labels say of its GPUs, and what they do not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlm_api.plan import Sharing
from vlm_operator.facts.nodes import node_facts
from vlm_operator.facts.types import Taint

GPU = "nvidia.com/gpu"


def discovered(product: str | None, memory: int | None, capability: str, count: int = 8, **more: str) -> dict[str, str]:
    """Labels as GPU feature discovery writes them; ``more`` by their last words, with __ for a dot."""
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
def test_labels_of_gpu_feature_discovery_are_taken_as_they_are(product, memory, capability):
    gpu = node_facts(node(discovered(product, memory, capability))).gpu
    assert (gpu.product, gpu.memory_mib, str(gpu.compute_capability)) == (product, memory, capability)
    assert (gpu.source, gpu.devices, gpu.sharing) == ("gfd", 8, Sharing.NONE)
    assert (gpu.driver, gpu.cuda) == ("580.95.05", (13, 0))
    assert gpu.ambiguous is None


def test_a_product_label_holds_pods_to_the_hardware_alone():
    assert node_facts(node(H100)).gpu.match_labels == {f"{GPU}.product": "NVIDIA-H100-80GB-HBM3"}


def test_without_a_product_label_capability_and_memory_hold_pods_to_the_hardware():
    gpu = node_facts(node(discovered(None, 81559, "9.0"))).gpu
    assert gpu.product is None
    assert str(gpu.compute_capability) == "9.0"
    assert gpu.match_labels == {
        f"{GPU}.compute.major": "9",
        f"{GPU}.compute.minor": "0",
        f"{GPU}.memory": "81559",
    }


def test_without_capability_labels_the_product_says_it():
    labels = {key: value for key, value in H100.items() if "compute" not in key}
    assert str(node_facts(node(labels)).gpu.compute_capability) == "9.0"


def test_gpus_without_labels_count_but_nothing_is_known_of_them():
    gpu = node_facts(node()).gpu
    assert (gpu.source, gpu.devices, gpu.allocatable) == ("unknown", 8, 8)
    assert (gpu.product, gpu.compute_capability, gpu.memory_mib, dict(gpu.match_labels)) == (None, None, None, {})


def test_empty_labels_on_a_node_without_gpus_mean_nothing():
    labels = {"gpu.nvidia.com/class": "", "gpu.nvidia.com/count": "", "cloud.google.com/gke-accelerator": ""}
    facts = node_facts(node(labels, allocatable={"cpu": "8"}))
    assert (facts.gpu, facts.unusable) == (None, None)


def test_a_gpu_without_a_memory_label_has_unknown_memory():
    gpu = node_facts(node(discovered("NVIDIA-GB10", None, "12.1", count=1), {GPU: "1"})).gpu
    assert gpu.memory_mib is None
    assert str(gpu.compute_capability) == "12.1"


# --- sharing ------------------------------------------------------------------------------------------------------


def test_a_mig_slice_has_its_own_memory_and_its_parents_capability():
    labels = discovered("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 9984, "9.0", count=56) | {
        "nvidia.com/mig.strategy": "single"
    }
    gpu = node_facts(node(labels, {GPU: "56"})).gpu
    assert (gpu.sharing, gpu.memory_mib, gpu.devices) == (Sharing.MIG, 9984, 56)
    assert str(gpu.compute_capability) == "9.0"


def test_a_mig_slice_is_known_by_its_slice_label_where_the_product_s_name_is_too_long():
    labels = discovered(None, 24000, "12.0", count=4)
    labels |= {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.slices.gi": "1"}
    assert node_facts(node(labels, {GPU: "4"})).gpu.sharing is Sharing.MIG


def test_the_mig_strategy_alone_does_not_make_a_whole_gpu_a_slice():
    assert node_facts(node(H100 | {"nvidia.com/mig.strategy": "single"})).gpu.sharing is Sharing.NONE


def test_an_invalid_mig_layout_makes_the_gpu_unusable_and_says_what_to_do():
    labels = discovered("NVIDIA-A100-SXM4-40GB-MIG-INVALID", 0, "8.0", count=0)
    labels |= {f"{GPU}.replicas": "0", f"{GPU}.sharing-strategy": ""}
    facts = node_facts(node(labels, {GPU: "0"}))
    assert "MIG" in facts.unusable
    assert "same profile" in facts.unusable
    assert (facts.gpu.devices, facts.gpu.memory_mib) == (0, None)


def test_slices_of_the_mixed_strategy_have_a_resource_and_labels_of_their_own():
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
def test_four_shares_of_one_card_are_one_card(strategy, sharing, memory_mib):
    labels = discovered("NVIDIA-L4-SHARED", 23034, "8.9", count=1)
    labels |= {f"{GPU}.replicas": "4", f"{GPU}.sharing-strategy": strategy}
    gpu = node_facts(node(labels, {GPU: "4"})).gpu
    assert (gpu.sharing, gpu.devices, gpu.allocatable, gpu.memory_mib) == (sharing, 1, 4, memory_mib)
    assert gpu.ambiguous is None


def test_a_renamed_shared_resource_is_named_where_the_plain_one_was_asked_for():
    labels = discovered("NVIDIA-L4", 23034, "8.9", count=1)
    labels |= {f"{GPU}.replicas": "4", f"{GPU}.sharing-strategy": "time-slicing"}
    offered = node(labels, {f"{GPU}.shared": "4"})
    assert f"{GPU}.shared" in node_facts(offered).unusable
    shared = node_facts(offered, resource_name=f"{GPU}.shared")
    assert (shared.unusable, shared.gpu.devices, shared.gpu.sharing) == (None, 1, Sharing.TIME_SLICING)


# --- labels that do not describe the whole node -------------------------------------------------------------------


def test_more_devices_than_labelled_means_a_second_model():
    gpu = node_facts(node(discovered("NVIDIA-A100-SXM4-80GB", 81920, "8.0", count=4), {GPU: "5"})).gpu
    assert "more than one GPU model" in gpu.ambiguous


def test_a_second_model_shows_also_while_one_device_is_not_healthy():
    labels = discovered("NVIDIA-A100-SXM4-80GB", 81920, "8.0", count=4)
    assert node_facts(node(labels, {GPU: "4"}, {GPU: "5"})).gpu.ambiguous is not None


def test_a_device_that_is_not_healthy_makes_a_node_smaller_not_ambiguous():
    gpu = node_facts(node(H100, {GPU: "7"}, {GPU: "8"})).gpu
    assert (gpu.devices, gpu.ambiguous) == (7, None)


def test_labels_are_not_trusted_while_the_mig_layout_changes():
    assert "pending" in node_facts(node(H100 | {"nvidia.com/mig.config.state": "pending"})).gpu.ambiguous


def test_a_gpu_for_virtual_machines_has_no_capability_even_where_its_product_is_known():
    labels = H100 | {f"{GPU}.compute.major": "-1", f"{GPU}.compute.minor": "-1"}
    gpu = node_facts(node(labels)).gpu
    assert gpu.compute_capability is None
    assert "vfio" in gpu.ambiguous
    assert "vfio" in node_facts(node(labels, {})).unusable


# --- what is there and cannot be used -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allocatable", "capacity", "says"),
    [({}, {}, "device plugin"), ({GPU: "0"}, {GPU: "8"}, "healthy")],
    ids=["no device plugin", "no healthy device"],
)
def test_labelled_gpus_that_nobody_offers_are_unusable(allocatable, capacity, says):
    assert says in node_facts(node(H100, allocatable, capacity)).unusable


def test_a_gpu_on_the_bus_without_a_device_plugin_is_seen():
    labels = {"feature.node.kubernetes.io/pci-10de.present": "true"}
    assert "device plugin" in node_facts(node(labels, {})).unusable


# --- the node itself ----------------------------------------------------------------------------------------------


def test_cordon_taints_readiness_and_architecture_are_the_nodes_own():
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


def test_the_deprecated_spellings_of_driver_and_cuda_version_are_read():
    labels = {
        f"{GPU}.product": "NVIDIA-L4",
        "nvidia.com/cuda.driver.major": "535",
        "nvidia.com/cuda.driver.minor": "104",
    }
    labels |= {"nvidia.com/cuda.driver.rev": "05", "nvidia.com/cuda.runtime.major": "12"}
    labels |= {"nvidia.com/cuda.runtime.minor": "2"}
    gpu = node_facts(node(labels)).gpu
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
def test_devices_are_counted_in_every_spelling_of_a_quantity(amount, devices):
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
VALUES = st.one_of(
    st.sampled_from(["", " ", "-1", "0", "8", "81559", "9.0", "nvidia", "H100_NVLINK_80GB", "NVIDIA-L4-MIG-INVALID"]),
    st.sampled_from(
        ["none", "single", "time-sharing", "9" * 40, "nan", "1e400", "٣", "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"]
    ),
    st.text(max_size=70),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
QUANTITIES = st.one_of(st.integers(-5, 10**12), st.sampled_from(["8", "8k", "1e99", "-1", "", "8x", "0.5"]), JSON)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES), QUANTITIES, QUANTITIES)
def test_no_label_and_no_quantity_raises_an_error_or_promises_devices_that_are_not_offered(labels, offered, capacity):
    facts = node_facts(node(labels, {GPU: offered}, {GPU: capacity}))
    if facts.gpu is not None:
        assert 0 <= facts.gpu.devices <= facts.gpu.allocatable
        assert facts.gpu.memory_mib is None or facts.gpu.memory_mib > 0
        assert facts.gpu.compute_capability is None or facts.gpu.compute_capability.major > 0
        assert all(labels[key] for key in facts.gpu.match_labels)
        assert facts.gpu.allocatable > 0 or facts.unusable


@given(JSON, st.lists(JSON, max_size=3))
def test_a_node_of_any_shape_raises_no_error(status, slices):
    assert (
        node_facts({"metadata": {"name": "n", "labels": status}, "spec": status, "status": status}, slices).name == "n"
    )


@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.integers(0, 10**6))
def test_the_order_of_labels_changes_nothing(labels, seed):
    shuffled = list(labels.items())
    random.Random(seed).shuffle(shuffled)
    first, second = node_facts(node(labels)), node_facts(node(dict(shuffled)))
    assert first == second
    assert list(first.gpu.match_labels) == list(second.gpu.match_labels)


def test_gpus_of_another_maker_are_named():
    facts = node_facts(node({}, {"amd.com/gpu": "8"}))
    assert facts.unusable == "it offers amd.com/gpu, and plans are for NVIDIA's GPUs and the CPU only"


@pytest.mark.parametrize(("amount", "memory_mib"), [("16Gi", 16384), ("16777216Ki", 16384), ("?", None), (None, None)])
def test_a_node_s_memory_is_read_in_every_unit(amount, memory_mib):
    assert node_facts(node({}, {"memory": amount})).memory_mib == memory_mib
