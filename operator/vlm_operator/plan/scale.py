"""What the number of replicas means for a plan in force: it changes with the spec, and the plan stays."""

from collections.abc import Mapping, Sequence

from vlm_api.plan import ServingPlan
from vlm_operator.checks import OF_SCALE, scale_findings
from vlm_operator.checks.types import ScaleInput
from vlm_operator.facts.types import ClaimFacts, NodeFacts
from vlm_operator.plan.make import listed, located
from vlm_operator.plan.request import PoolRequest


def at_scale(
    plan: ServingPlan, request: PoolRequest, nodes: Sequence[NodeFacts], claims: Mapping[str, ClaimFacts]
) -> ServingPlan:
    """A plan in force with the findings of the spec's current scale, in place of those of the scale that it was made for."""
    chosen = tuple(node for node in nodes if node.name in plan.hardware.nodes)
    running = next((s.value for s in plan.settings if s.name == "max_running_requests" and s.applied), None)
    scale = ScaleInput(request.spec, plan.resources.devices_per_pod, running, chosen, claims)
    kept = [finding for finding in plan.findings if finding.reason not in OF_SCALE]
    now = [located(finding, request) for finding in scale_findings(scale)]
    return plan.model_copy(update={"findings": listed([*kept, *now])})


def is_number_refused(plan: ServingPlan | None) -> bool:
    """Whether the requested number of replicas is forbidden."""
    return plan is not None and any(error.reason in OF_SCALE for error in plan.errors)
