"""Whether the nodes that pods run on are still what the plan was made for. It is only told: running pods are left alone.

Labels flip while a driver is upgraded or the discovery of GPUs starts anew. So a difference counts once it has lasted, and
so does its end (``Lasting``). Plans are sticky: the next change of the spec makes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from vlm_api.plan import PlanHardware, ServingPlan
from vlm_api.spec import Device
from vlm_api.status import ConditionStatus
from vlm_operator.controller import reasons
from vlm_operator.controller.observed import Drift, Observed, Verdict
from vlm_operator.controller.pods import PodView
from vlm_operator.facts.types import GpuFacts, NodeFacts

NEXT_STEP: Final = "the pod stays as it is; delete it to place it anew, or change the spec for a new plan"


def difference(
    plan: ServingPlan | None, pods: Sequence[PodView], node_of: Callable[[str], NodeFacts | None]
) -> Drift | None:
    """The first difference, in the order of the pods' names. ``node_of`` knows the nodes as they are now."""
    if plan is None or plan.errors or plan.hardware.device != Device.CUDA.value:
        return None
    for pod in sorted(pods, key=lambda p: p.name):
        if pod.node is None or pod.deleting or pod.plan_hash != plan.hash:
            continue
        node = node_of(pod.node)
        if node is None:
            return Drift(reasons.NODE_GONE, f"node {pod.node} of pod {pod.name} has left the cluster")
        if found := next(_differences(plan, node), None):
            reason, said = found
            return Drift(reason, f"pod {pod.name} on node {pod.node}: {said}; {NEXT_STEP}")
    return None


def _differences(plan: ServingPlan, node: NodeFacts) -> Iterator[tuple[str, str]]:
    hardware, gpu = plan.hardware, node.gpu
    for key, value in sorted(hardware.match_labels.items()):
        if node.labels.get(key) != value:
            now = f"is {node.labels[key]}" if key in node.labels else "is gone"
            yield reasons.LABELS_CHANGED, f"the label {key} was {value} and {now}"
    if node.unusable is not None:
        yield reasons.HARDWARE_CHANGED, f"its GPUs cannot be used any more: {node.unusable}"
    elif gpu is None:
        # A plan that was made without any knowledge of GPUs has nothing to compare.
        if hardware.source not in ("unknown", "spec"):
            yield reasons.HARDWARE_CHANGED, "it offers no GPU any more"
    else:
        needed = plan.resources.devices_per_pod
        yield from ((reasons.HARDWARE_CHANGED, said) for said in _facts(hardware, gpu, needed))


def _facts(hardware: PlanHardware, gpu: GpuFacts, needed: int) -> Iterator[str]:
    capability = str(gpu.compute_capability) if gpu.compute_capability is not None else None
    memory, least = gpu.memory_mib, hardware.memory_mib
    if hardware.source == "spec" and memory is not None and least is not None:
        memory = min(memory, least)  # minMemoryMiB, which no label had told of
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("product", hardware.product, gpu.product),
        ("compute capability", hardware.compute_capability, capability),
        ("memory in MiB", least, memory),
        ("sharing", hardware.sharing.value, gpu.sharing.value),
        ("driver", hardware.driver, gpu.driver),
    )
    # What is not known now or was not known then is no difference.
    yield from (
        f"the {name} was {was} and is {now}" for name, was, now in pairs if None not in (was, now) and was != now
    )
    if gpu.devices < needed:
        yield f"it has {gpu.devices} devices left, and the pod was given {needed}"


def told_before(conditions: Mapping[str, Any]) -> Drift | None:
    """What the status says; ``conditions`` by type."""
    found = conditions.get("HardwareDrift")
    return Drift(found.reason, found.message) if found is not None and found.status is ConditionStatus.TRUE else None


def hardware_drift(seen: Observed) -> Verdict:
    """Whether a node that pods run on is no longer what the plan was made for."""
    if seen.plan is None or seen.plan.errors:
        said = "no plan is in force that nodes could be compared with; see Ready"
        return Verdict(ConditionStatus.UNKNOWN, reasons.NO_PLAN, said)
    if seen.drift is not None:
        return Verdict(ConditionStatus.TRUE, seen.drift.reason, seen.drift.message)
    return Verdict(ConditionStatus.FALSE, reasons.NO_DRIFT, "nodes look as they did when the plan was made")
