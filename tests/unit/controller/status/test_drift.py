"""Hardware that is no longer what a plan was made for."""

from dataclasses import replace
from typing import Any

import pytest
from unit.controller.observations import pod

from vlm_api.plan import PlanHardware, PlanResources, Sharing
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service.observe import DEBOUNCE_SECONDS, Debouncer
from vlm_operator.controller.status.drift import Drift, difference
from vlm_operator.facts.types import ComputeCapability, GpuFacts, NodeFacts

from unit.manifests.samples import plan  # isort: skip

KEY = Key("default", "vlm")
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
GPU = GpuFacts(
    source="gfd",
    product="NVIDIA-H100-80GB-HBM3",
    compute_capability=ComputeCapability(9, 0),
    memory_mib=81559,
    devices=8,
    driver="580.95.05",
)
NODE = NodeFacts(name="n", labels=LABELS, gpu=GPU)
PLAN = plan().model_copy(
    update={
        "hash": "abc",
        "hardware": PlanHardware(
            device="cuda",
            compute_capability="9.0",
            product="NVIDIA-H100-80GB-HBM3",
            memory_mib=81559,
            driver="580.95.05",
            source="gfd",
            match_labels=LABELS,
        ),
        "resources": PlanResources(devices_per_pod=2, pods=1),
    }
)


def found(there: NodeFacts | None, **of_pod: Any) -> Drift | None:
    return difference(PLAN, [pod(**of_pod)], lambda name: there)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (replace(NODE, labels={}), "nvidia.com/gpu.product"),
        (
            replace(NODE, gpu=replace(GPU, product="NVIDIA-H200")),
            "product was NVIDIA-H100-80GB-HBM3 and is NVIDIA-H200",
        ),
        (replace(NODE, gpu=replace(GPU, memory_mib=40000)), "memory in MiB was 81559 and is 40000"),
        (replace(NODE, gpu=replace(GPU, compute_capability=ComputeCapability(8, 9))), "was 9.0 and is 8.9"),
        (replace(NODE, gpu=replace(GPU, driver="570.1")), "driver was 580.95.05 and is 570.1"),
        (replace(NODE, gpu=replace(GPU, sharing=Sharing.MIG)), "sharing was none and is mig"),
        (replace(NODE, gpu=replace(GPU, devices=1)), "only 1 devices"),
        (replace(NODE, gpu=None), "no longer offers a GPU"),
        (replace(NODE, unusable="its MIG layout is invalid"), "its MIG layout is invalid"),
        (None, "has left the cluster"),
    ],
)
def test_each_fact_that_the_plan_was_made_from_is_compared(node: NodeFacts | None, says: str):
    drift = found(node)
    assert says in drift.message


@pytest.mark.parametrize(
    "node",
    [
        NODE,
        replace(NODE, labels={**LABELS, "nvidia.com/gfd.timestamp": "2"}),
        replace(NODE, cordoned=True),
        replace(NODE, gpu=replace(GPU, driver=None, memory_mib=None)),
        replace(NODE, gpu=replace(GPU, devices=7)),
    ],
    ids=["the same", "a timestamp", "a cordon", "facts that are not known now", "a device that the pod does not need"],
)
def test_what_does_not_matter_is_not_a_difference(node: NodeFacts):
    assert found(node) is None


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        ({"devices": 6, "allocatable": 6}, None),
        ({"devices": 4, "allocatable": 4}, "it offers only 4 devices, and 3 pods of the service there use 6"),
        ({"devices": 2, "allocatable": 8}, None),
        ({"devices": 2, "claims": True}, None),
    ],
    ids=["enough", "two devices went away", "shared devices", "claims, which pods may share"],
)
def test_the_pods_of_a_node_need_their_devices_together(gpu: dict[str, Any], says: str | None):
    node = replace(NODE, gpu=replace(GPU, **gpu))
    pods = [pod(f"vlm-{n}") for n in range(3)]
    left_out = [pod("evicted", running=False), pod("leaving", deleting=True), pod("elsewhere", node="node-1")]
    drift = difference(PLAN, [*pods, *left_out], lambda name: node)
    assert (drift and says and says in drift.message) or (drift is None and says is None)


def test_later_labels_are_compared_with_the_minimum_memory_of_the_spec():
    required = PlanHardware(device="cuda", compute_capability="9.0", memory_mib=80_000, source="spec")
    made = PLAN.model_copy(update={"hardware": required})
    assert difference(made, [pod()], lambda name: NODE) is None
    drift = difference(made, [pod()], lambda name: replace(NODE, gpu=replace(GPU, memory_mib=40_000)))
    assert "was 80000 and is 40000" in drift.message


def test_pods_that_go_pods_of_other_plans_and_plans_for_the_cpu_are_left_out():
    gone = replace(NODE, gpu=None)
    assert found(gone, deleting=True) is None
    assert found(gone, plan_hash="other") is None
    assert found(gone, node=None) is None
    cpu = PLAN.model_copy(update={"hardware": PlanHardware(device="cpu")})
    assert difference(cpu, [pod()], lambda name: gone) is None


def test_a_flip_that_does_not_last_is_never_reported_and_its_end_has_to_last_as_well():
    now = [0.0]
    drifts, drift = Debouncer[Drift](lambda: now[0]), Drift("HardwareChanged", "m")
    assert drifts.debounce(KEY, "main", drift, None) == (None, True)
    now[0] += DEBOUNCE_SECONDS / 2
    assert drifts.debounce(KEY, "main", None, None) == (None, False)
    now[0] += DEBOUNCE_SECONDS
    assert drifts.debounce(KEY, "main", drift, None) == (None, True)
    assert drifts.debounce(KEY, "other", None, None) == (None, False), "each pool by itself"
    now[0] += DEBOUNCE_SECONDS
    assert drifts.debounce(KEY, "main", drift, None) == (drift, False)
    now[0] += 1
    assert drifts.debounce(KEY, "main", None, None) == (drift, True)
    now[0] += DEBOUNCE_SECONDS
    assert drifts.debounce(KEY, "main", None, None) == (None, False)


def test_an_operator_that_restarts_keeps_what_the_status_reports_and_still_holds():
    drift = Drift("HardwareChanged", "m")
    assert Debouncer[Drift](lambda: 0.0).debounce(KEY, "main", drift, drift) == (drift, False)
    assert Debouncer[Drift](lambda: 0.0).debounce(KEY, "main", None, drift) == (drift, True)
