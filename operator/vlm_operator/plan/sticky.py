"""Whether the plan in force stays."""

from collections.abc import Sequence

from vlm_api.plan import ServingPlan
from vlm_api.spec import Device
from vlm_operator.facts.types import NodeFacts
from vlm_operator.placement.choose import UNLABELLED, choose_hardware
from vlm_operator.plan.request import PoolRequest
from vlm_operator.plan.stored import StoredPlan


def stays(
    previous: StoredPlan,
    request: PoolRequest,
    nodes: Sequence[NodeFacts],
    *,
    scheduled: bool,
    ready: bool,
    mismatch: bool,
) -> bool:
    """Whether the plan in force is kept: while the spec is the same, its pods have a node and found the planned hardware.

    So neither an upgrade of the operator nor a label that changes replaces a pod that serves. One plan is replaced before a
    pod serves: one for unknown GPUs, as soon as they are known. When a cluster scales from zero, the pod is on the first GPU
    node before that node's labels describe what it should have been planned for.
    """
    if previous.plan.spec_digest != request.digest or not scheduled or mismatch:
        return False
    return ready or not _is_blind(previous.plan) or not _known_now(previous.plan, request, nodes)


def _is_blind(plan: ServingPlan) -> bool:
    """Whether nothing was known about the GPUs that the plan was made for."""
    hardware = plan.hardware
    return hardware.device == Device.CUDA.value and (hardware.source in UNLABELLED or not hardware.nodes)


def _known_now(plan: ServingPlan, request: PoolRequest, nodes: Sequence[NodeFacts]) -> bool:
    # Which of several nodes has free devices does not matter here.
    devices = plan.resources.devices_per_pod
    choice = choose_hardware(request.spec, devices, tuple(nodes), {}, lambda gpu, _: (gpu.source in UNLABELLED,))
    return choice.chosen is not None and choice.source not in UNLABELLED
