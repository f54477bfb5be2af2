"""Whether the nodes that pods run on still match the plan. Drift is only reported: running pods are left alone. Pure.

Labels flip while a driver is upgraded or GPU feature discovery restarts, so the controller debounces a difference. Plans are
sticky: the next change of the spec makes a new one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from vlm_api import reasons
from vlm_api.plan import PlanHardware, ServingPlan
from vlm_api.reasons import Conditions
from vlm_api.spec import Device
from vlm_api.status import Condition
from vlm_operator.controller.status.observation import FALSE, TRUE, UNKNOWN, Drift, PoolObservation, Verdict
from vlm_operator.controller.status.pods import PodView
from vlm_operator.facts.types import GpuFacts, NodeFacts

NEXT_STEP: Final = "the pod keeps running; delete it to reschedule it, or change the spec for a new plan"


def difference(
    plan: ServingPlan | None, pods: Sequence[PodView], node_of: Callable[[str], NodeFacts | None]
) -> Drift | None:
    """The first difference by pod name. ``node_of`` gives a node's current facts, None if it is gone."""
    if plan is None or plan.errors or plan.hardware.device != Device.CUDA.value:
        return None
    compared = [p for p in sorted(pods, key=lambda p: p.name) if not p.deleting and p.plan_hash == plan.hash]
    running = Counter(pod.node for pod in compared if pod.running)
    for pod in compared:
        if pod.node is None:
            continue
        node = node_of(pod.node)
        if node is None:
            return Drift(reasons.NODE_GONE, f"node {pod.node} of pod {pod.name} has left the cluster")
        if first := next(_differences(plan, node, running[pod.node]), None):
            reason, what = first
            return Drift(reason, f"pod {pod.name} on node {pod.node}: {what}; {NEXT_STEP}")
    return None


def _differences(plan: ServingPlan, node: NodeFacts, running: int) -> Iterator[tuple[str, str]]:
    hardware, gpu = plan.hardware, node.gpu
    for key, value in sorted(hardware.match_labels.items()):
        if node.labels.get(key) != value:
            now = f"is {node.labels[key]}" if key in node.labels else "is gone"
            yield reasons.LABELS_CHANGED, f"the label {key} was {value} and {now}"
    if node.unusable is not None:
        yield reasons.HARDWARE_CHANGED, f"its GPUs can no longer be used: {node.unusable}"
    elif gpu is None:
        # A plan made without facts about GPUs has nothing to compare.
        if hardware.source not in ("unknown", "spec"):
            yield reasons.HARDWARE_CHANGED, "it no longer offers a GPU"
    else:
        needed = plan.resources.devices_per_pod
        yield from ((reasons.HARDWARE_CHANGED, what) for what in _facts(hardware, gpu, needed))
        # Each pod alone may still find enough: devices that went away are missing to all pods of the node together.
        offered = max(gpu.devices, gpu.allocatable)  # more than the devices where pods share them
        if offered < running * needed and not gpu.claims:  # pods may share a claim
            what = f"it offers only {offered} devices, and {running} pods of the service there use {running * needed}"
            yield reasons.HARDWARE_CHANGED, what


def _facts(hardware: PlanHardware, gpu: GpuFacts, needed: int) -> Iterator[str]:
    capability = str(gpu.compute_capability) if gpu.compute_capability is not None else None
    memory, least = gpu.memory_mib, hardware.memory_mib
    if hardware.source == "spec" and memory is not None and least is not None:
        memory = min(memory, least)  # minMemoryMiB of the spec, not a label
    pairs: tuple[tuple[str, Any, Any], ...] = (
        ("product", hardware.product, gpu.product),
        ("compute capability", hardware.compute_capability, capability),
        ("memory in MiB", least, memory),
        ("sharing", hardware.sharing.value, gpu.sharing.value),
        ("driver", hardware.driver, gpu.driver),
    )
    # A fact that is or was unknown is not a difference.
    yield from (
        f"the {name} was {was} and is {now}" for name, was, now in pairs if None not in (was, now) and was != now
    )
    if gpu.devices < needed:
        yield f"it has only {gpu.devices} devices, and the pod uses {needed}"


def reported_drift(conditions: Mapping[str, Condition]) -> Drift | None:
    """The drift in the status, if any; ``conditions`` by type."""
    condition = conditions.get(Conditions.HARDWARE_DRIFT)
    return Drift(condition.reason, condition.message) if condition is not None and condition.status is TRUE else None


def hardware_drift(pool: PoolObservation) -> Verdict:
    """Whether a node that pods run on no longer matches the plan."""
    if pool.plan is None or pool.plan.errors:
        return Verdict(UNKNOWN, reasons.NO_PLAN, "no plan is in force to compare the nodes with; see Ready")
    if pool.drift is not None:
        return Verdict(TRUE, pool.drift.reason, pool.drift.message)
    return Verdict(FALSE, reasons.NO_DRIFT, "the nodes match the plan")
