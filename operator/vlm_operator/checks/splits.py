"""Splits over devices that the engine asserts against at its start, and over nodes that the cluster cannot serve."""

from collections.abc import Iterator

from vlm_api.plan import Finding, error, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.placement.nearest import has_room
from vlm_operator.sglang.splits import problems, split_of, works


def even(plan: CheckInput) -> Iterator[Finding]:
    """An Error if the model does not divide over its ranks; one for all parts that do not."""
    found = list(problems(plan.context.model, split_of(plan.context, plan.declared)))
    if not found:
        return
    reason = found[0].reason
    clauses = " and ".join(p.clause for p in found if p.reason == reason)
    path, step = _step(plan, reason)
    over = ""
    if reason in (FindingReason.HEADS_NOT_DIVISIBLE, FindingReason.BLOCKS_NOT_DIVISIBLE):
        over = f" cannot be split evenly over parallelism.tensor {plan.context.spec.parallelism.tensor}"
    yield error(reason, f"the model's {clauses}{over}, so the engine would not start: {step}", path)


def unchecked(plan: CheckInput) -> Iterator[Finding]:
    """A split of a model whose heads are not known: a Warning where it would be unusual."""
    context, tensor = plan.context, plan.context.spec.parallelism.tensor
    if tensor == 1 or not context.cuda or context.model.attention_heads is not None:
        return
    message = (
        f"the number of the model's attention heads is unknown, so it was not checked whether they divide over "
        f"parallelism.tensor {tensor}: plan with --model-files, or look up num_attention_heads in the model's config.json"
    )
    unusual = tensor & (tensor - 1) != 0
    yield (warning if unusual else info)(FindingReason.SPLIT_NOT_CHECKED, message, "spec.parallelism.tensor")


def _step(plan: CheckInput, reason: FindingReason) -> tuple[str, str]:
    """Which field to change, and to which values."""
    context = plan.context
    tensor, expert_ranks = context.spec.parallelism.tensor, context.choices.settings.get("ep_size")
    if reason is FindingReason.TOO_FEW_LAYERS:
        return "spec.parallelism.pipeline", f"lower it to {context.model.layers} or below"
    if reason is FindingReason.EXPERTS_NOT_DIVISIBLE and expert_ranks is not None:
        whole = [n for n in range(1, tensor + 1) if tensor % n == 0 and (context.model.experts or 0) % n == 0]
        return expert_ranks.path, f"use {_listed(whole)}"
    others = _nearest(plan, tensor)
    return "spec.parallelism.tensor", f"use {_listed(others)}" if others else "use another model or another split"


def _nearest(plan: CheckInput, tensor: int) -> list[int]:
    """The nearest numbers of tensor ranks below and above that work, and whose memory holds the model as far as is known."""

    def suits(number: int) -> bool:
        context, declared = plan.context, plan.declared
        return works(context, declared, number) and has_room(context, declared, number, plan.pool_mib) is not False

    below = next((n for n in range(tensor - 1, 0, -1) if suits(n)), None)
    above = next((n for n in range(tensor + 1, 2 * tensor + 65) if suits(n)), None)
    return [n for n in (below, above) if n is not None]


def _listed(numbers: list[int]) -> str:
    return " or ".join(str(n) for n in numbers)


def group_controller(plan: CheckInput) -> Iterator[Finding]:
    """Several nodes per replica, in a cluster without the controller for such groups."""
    if not plan.context.one_node and not plan.cluster.has_leader_worker_sets:
        yield error(
            FindingReason.LEADER_WORKER_SET_MISSING,
            "several nodes per replica need the LeaderWorkerSet controller, which this cluster does not have: install it "
            "(leaderworkerset.x-k8s.io), or set multinode.nodeCount to 1",
            "spec.multinode.nodeCount",
        )
