"""Dynamic resource allocation: GPUs listed in ResourceSlices only."""

from vlm_api.plan import Sharing
from vlm_operator.facts.nodes.node import node_facts
from vlm_operator.facts.nodes.slices import by_node, reduced


def device(name="gpu-0", kind="gpu", product="NVIDIA H100 80GB HBM3", memory="81559Mi", capability="9.0.0", **more):
    attributes = {
        "type": {"string": kind},
        "productName": {"string": product},
        "cudaComputeCapability": {"version": capability},
        "driverVersion": {"version": "580.95.5"},
        "cudaDriverVersion": {"version": "13.0.0"},
    }
    capacity = {"memory": {"value": memory}} if memory else {}
    return {"name": name, "attributes": attributes, "capacity": capacity} | more


def resource_slice(*devices, node="dra", pool="dra", generation=1, count=1, driver="gpu.nvidia.com"):
    pool = {"name": pool, "generation": generation, "resourceSliceCount": count}
    return {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def facts(*slices, labels=None, allocatable=None):
    node = {"metadata": {"name": "dra", "labels": labels or {}}, "status": {"allocatable": allocatable or {}}}
    found = node_facts(node, slices)
    assert node_facts(node, [{"spec": reduced(item)} for item in slices]) == found, "reduced slices give equal facts"
    return found


def test_a_node_without_labels_and_resource_is_read_from_its_slices():
    found = facts(resource_slice(device("gpu-0"), device("gpu-1")))
    gpu = found.gpu
    assert (gpu.source, gpu.claims, gpu.devices, gpu.memory_mib) == ("dra", True, 2, 81559)
    assert (gpu.product, str(gpu.compute_capability)) == ("NVIDIA-H100-80GB-HBM3", "9.0")
    assert (gpu.driver, gpu.cuda) == ("580.95.5", (13, 0))
    assert (found.unusable, gpu.ambiguous) == (None, None)


def test_a_device_without_memory_has_unknown_memory():
    assert facts(resource_slice(device(memory=None))).gpu.memory_mib is None


def test_slices_of_other_nodes_and_other_drivers_are_ignored():
    assert facts(resource_slice(device(), node="other"), resource_slice(device(), driver="dra.net")).gpu is None


def test_an_older_generation_of_a_pool_is_ignored():
    old = resource_slice(device("gpu-0"), device("gpu-1"), generation=1)
    assert facts(old, resource_slice(device("gpu-0"), generation=2)).gpu.devices == 1


def test_an_incomplete_pool_is_ambiguous():
    assert "not complete" in facts(resource_slice(device(), count=2)).gpu.ambiguous


def test_two_models_in_one_node_are_ambiguous():
    found = facts(
        resource_slice(device("a"), device("b"), device("c", product="NVIDIA L4", memory="23034Mi", capability="8.9.0"))
    )
    assert "different GPU models" in found.gpu.ambiguous
    assert (found.gpu.product, found.gpu.devices, found.gpu.allocatable) == ("NVIDIA-H100-80GB-HBM3", 2, 3)


def test_mig_devices_are_slices():
    mig = device("mig-0", kind="mig", memory="9984Mi")
    mig["attributes"]["profile"] = {"string": "1g.10gb"}
    gpu = facts(resource_slice(mig)).gpu
    assert (gpu.sharing, gpu.memory_mib, gpu.product) == (Sharing.MIG, 9984, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")


def test_gpus_for_virtual_machines_and_tainted_gpus_are_unusable():
    assert "vfio" in facts(resource_slice(device(kind="vfio"))).unusable
    assert "taint" in facts(resource_slice(device(taints=[{"key": "bad", "effect": "NoSchedule"}]))).unusable


def test_the_extended_resource_takes_precedence_over_slices():
    gpu = facts(resource_slice(device()), allocatable={"nvidia.com/gpu": "8"}).gpu
    assert (gpu.claims, gpu.devices) == (False, 8)


def test_labels_of_gpu_feature_discovery_still_select_the_hardware():
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "1"}
    gpu = facts(resource_slice(device()), labels=labels).gpu
    assert (gpu.source, gpu.match_labels) == ("dra", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})


def test_v1beta1_slices_are_read():
    beta = {"name": "gpu-0", "basic": {key: value for key, value in device().items() if key != "name"}}
    assert facts(resource_slice(beta)).gpu.memory_mib == 81559


def test_each_node_gets_its_own_slices_and_slices_without_a_node():
    own, other, free = ({"spec": {"nodeName": "a"}}, {"spec": {"nodeName": "b"}}, {"spec": {}})
    of = by_node([own, other, free, {"spec": {"nodeName": ["odd"]}}])
    assert of("a") == [own, free]
    assert of("c") == [free]


def test_equal_devices_share_one_object_without_unused_fields():
    pages = {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "81559Mi"}}}]}
    devices = [device(f"mig-{n}", kind="mig", memory="9984Mi", **pages) for n in range(200)]
    for number, one in enumerate(devices):
        one["attributes"] |= {"uuid": {"string": f"MIG-{number}"}, "profile": {"string": "1g.10gb"}}
    kept = reduced(resource_slice(*devices))["devices"]
    assert len(kept) == 200
    assert len({id(one) for one in kept}) == 1
    assert "consumesCounters" not in kept[0]
    assert "uuid" not in kept[0]["attributes"]
