"""Clusters without GPU feature discovery: facts from the cloud providers' labels."""

import pytest

from vlm_api.plan import Sharing
from vlm_operator.facts.nodes.node import node_facts

GKE = "cloud.google.com/gke-"
AWS = "karpenter.k8s.aws/instance-gpu-"


def gpu(labels, offered="8"):
    facts = node_facts(
        {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": offered}}}
    )
    assert facts.unusable is None
    return facts.gpu


def coreweave(name, vram):
    labels = {"gpu.nvidia.com/class": name, "gpu.nvidia.com/model": name, "gpu.nvidia.com/count": "8"}
    # CoreWeave also sets GKE's label.
    return labels | {"gpu.nvidia.com/vram": vram, "cloud.google.com/gke-accelerator": name}


def aws(name, memory, prefix=AWS):
    return {f"{prefix}name": name, f"{prefix}memory": memory, f"{prefix}manufacturer": "nvidia", f"{prefix}count": "8"}


@pytest.mark.parametrize(
    ("labels", "source", "capability", "memory_mib"),
    [
        ({f"{GKE}accelerator": "nvidia-h100-80gb", f"{GKE}accelerator-count": "8"}, "gke", "9.0", 81559),
        ({f"{GKE}accelerator": "nvidia-l4"}, "gke", "8.9", 23034),
        ({f"{GKE}accelerator": "nvidia-tesla-a100"}, "gke", "8.0", 40960),
        ({f"{GKE}accelerator": "nvidia-a100-80gb"}, "gke", "8.0", 81920),
        ({f"{GKE}accelerator": "nvidia-of-tomorrow"}, "gke", "None", None),
        (coreweave("H100_NVLINK_80GB", "81"), "coreweave", "9.0", 81559),
        (coreweave("H200", "143"), "coreweave", "9.0", 143771),
        (coreweave("OF_TOMORROW", "500"), "coreweave", "None", 500_000),
        (aws("h100", "81920"), "karpenter", "9.0", 81559),
        (aws("a100", "40960"), "karpenter", "8.0", 40960),
        (aws("a100", "81920"), "karpenter", "8.0", 81920),
        (aws("t4", "16384"), "karpenter", "7.5", 15109),
        (aws("l40s", "45776"), "karpenter", "8.9", 45776),
        (aws("h200", "144384", "eks.amazonaws.com/instance-gpu-"), "karpenter", "9.0", 143771),
        ({"karpenter.azure.com/sku-gpu-name": "A100", "karpenter.azure.com/sku-gpu-count": "8"}, "aks", "8.0", None),
        (
            {
                "kubernetes.azure.com/accelerator": "nvidia",
                "node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5",
            },
            "aks",
            "9.0",
            None,
        ),
    ],
)
def test_a_providers_gpu_name_gives_capability_and_memory_if_certain(labels, source, capability, memory_mib):
    found = gpu(labels)
    assert (found.source, str(found.compute_capability), found.memory_mib) == (source, capability, memory_mib)
    assert found.devices == 8


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (coreweave("H200", "143"), {"gpu.nvidia.com/class": "H200"}),
        ({f"{GKE}accelerator": "nvidia-l4"}, {f"{GKE}accelerator": "nvidia-l4"}),
        (aws("a100", "40960"), {f"{AWS}name": "a100", f"{AWS}memory": "40960"}),
        (
            {"kubernetes.azure.com/accelerator": "nvidia", "node.kubernetes.io/instance-type": "Standard_NC4as_T4_v3"},
            {"node.kubernetes.io/instance-type": "Standard_NC4as_T4_v3", "kubernetes.azure.com/accelerator": "nvidia"},
        ),
    ],
)
def test_pods_select_the_hardware_by_the_providers_labels(labels, match):
    assert gpu(labels).match_labels == match


def test_a_partition_on_gke_is_a_mig_slice_of_unknown_memory():
    labels = {
        f"{GKE}accelerator": "nvidia-a100-80gb",
        f"{GKE}gpu-partition-size": "1g.10gb",
        f"{GKE}accelerator-count": "1",
    }
    found = gpu(labels, "7")
    assert (found.sharing, found.memory_mib, found.devices) == (Sharing.MIG, None, 7)
    assert found.match_labels[f"{GKE}gpu-partition-size"] == "1g.10gb"


@pytest.mark.parametrize(
    ("strategy", "sharing", "memory_mib"),
    [("time-sharing", Sharing.TIME_SLICING, 23034), ("mps", Sharing.MPS, 23034 // 4)],
)
def test_a_shared_gpu_on_gke_is_one_gpu(strategy, sharing, memory_mib):
    labels = {f"{GKE}accelerator": "nvidia-l4", f"{GKE}gpu-sharing-strategy": strategy}
    found = gpu(labels | {f"{GKE}max-shared-clients-per-gpu": "4"}, "4")
    assert (found.sharing, found.devices, found.allocatable, found.memory_mib) == (sharing, 1, 4, memory_mib)


def test_a_gpu_of_another_vendor_is_ignored():
    labels = aws("radeon-pro-v520", "8192") | {f"{AWS}manufacturer": "amd"}
    assert gpu(labels).source == "unknown"


def test_gpu_feature_discovery_overrides_the_provider():
    labels = aws("h100", "81920") | {
        "nvidia.com/gpu.product": "NVIDIA-H100-NVL",
        "nvidia.com/gpu.memory": "95830",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
    }
    found = gpu(labels)
    assert (found.source, found.memory_mib, found.product) == ("gfd", 95830, "NVIDIA-H100-NVL")


def test_the_provider_names_the_gpu_if_discovery_does_not():
    labels = {f"{GKE}accelerator": "nvidia-h100-80gb", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559"}
    found = gpu(labels)
    assert (found.source, found.product, str(found.compute_capability)) == ("gfd", "nvidia-h100-80gb", "9.0")
    assert found.match_labels == {f"{GKE}accelerator": "nvidia-h100-80gb"}


@pytest.mark.parametrize(
    ("instance_type", "product", "capability", "memory_mib"),
    [
        ("p5.48xlarge", "h100", (9, 0), 81_559),
        ("p6-b200.48xlarge", "b200", (10, 0), 183_359),
        ("g6e.xlarge", "l40s", (8, 9), 45_776),
        ("g7.2xlarge", "rtx-pro-4500", (12, 0), 32_768),
        ("g7e.48xlarge", "rtx-pro-server-6000", (12, 0), 97_887),
    ],
)
def test_a_node_with_only_an_instance_type_is_identified_by_it(instance_type, product, capability, memory_mib):
    found = gpu({"node.kubernetes.io/instance-type": instance_type})
    assert (found.source, found.product, found.compute_capability, found.memory_mib) == (
        "karpenter",
        product,
        capability,
        memory_mib,
    )
    assert found.match_labels == {"node.kubernetes.io/instance-type": instance_type}
    assert instance_type in found.inferred


def test_a_part_of_a_gpu_is_virtual_with_memory_only_from_a_label():
    found = gpu({"node.kubernetes.io/instance-type": "g6f.xlarge"})
    assert (found.virtual, found.memory_mib) == (True, None)
    karpenter = "karpenter.k8s.aws/instance-gpu"
    found = gpu({f"{karpenter}-name": "l4", f"{karpenter}-count": "0", f"{karpenter}-memory": "2861"})
    assert (found.virtual, found.memory_mib) == (True, 2861)


def test_azure_sizes_are_recognised_outside_aks():
    found = gpu({"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"})
    assert (found.source, found.compute_capability, found.memory_mib) == ("aks", (9, 0), None)


@pytest.mark.parametrize(
    "instance_type", ["m7i.48xlarge", "p9.48xlarge", "p5", "p5.", "ecs.gn7.xlarge", "n1-standard-4", ""]
)
def test_other_instance_types_give_no_facts(instance_type):
    found = gpu({"node.kubernetes.io/instance-type": instance_type})
    assert (found.source, found.product, found.inferred) == ("unknown", None, None)


def test_gpu_feature_discovery_overrides_the_instance_type():
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge", "nvidia.com/gpu.product": "NVIDIA-L4"}
    assert gpu(labels).product == "NVIDIA-L4"
