"""The engine's release and the user's settings for it: known bugs, and settings with side effects."""

from collections.abc import Iterator
from typing import Any

from vlm_api.plan import Finding, Source, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.arguments import AUTHORITIES
from vlm_operator.checks.types import CheckInput
from vlm_operator.sglang.catalogue.releases import Fault
from vlm_operator.sglang.expected import decode_graph
from vlm_operator.sglang.ranks import running_share
from vlm_operator.sglang.rules.user import NO_CUDA_IPC
from vlm_operator.sglang.transport import declines_cuda_ipc, travels_by_cuda_ipc


def known_bugs(plan: CheckInput) -> Iterator[Finding]:
    """Bugs of the release that this plan can trigger, with the next better release."""
    engine = plan.context.spec.engine
    path = "spec.engine.image" if engine.image and not engine.version else "spec.engine.version"
    for fault in plan.context.engine.faults:
        if _applies(fault, plan):
            yield warning(
                FindingReason.ENGINE_FAULT,
                f"{plan.context.engine_name()} {fault.reason}: use {fault.fixed_in} or newer, {fault.step}",
                path,
            )


def _applies(fault: Fault, plan: CheckInput) -> bool:
    cuda_ipc = plan.context.cuda and travels_by_cuda_ipc(plan.declared)
    values: dict[str, Any] = {
        "transport": "cuda_ipc" if cuda_ipc else "cpu",
        "needs_key": plan.context.spec.security.api_key_secret_ref is not None,
    }
    return all(values.get(name, plan.declared.value(name)) in wanted for name, wanted in fault.when.items())


# How many times more or fewer requests count as other traffic than was measured. Ours, not measured.
OTHER_TRAFFIC = 2


def measured_elsewhere(plan: CheckInput) -> Iterator[Finding]:
    """A profile that is applied to other traffic, or to more devices, than it was measured with."""
    context, profile = plan.context, plan.context.profile
    if profile is None or profile.measured is None or not context.tuned:
        return
    if not any(s.applied and s.source is Source.PROFILE for s in plan.declared):
        return
    there, here, devices = profile.measured, context.spec.workload.concurrency, context.spec.parallelism.tensor
    other = []
    if here is not None and not there.requests / OTHER_TRAFFIC <= here <= there.requests * OTHER_TRAFFIC:
        other.append(f"{here:,} {'is' if here == 1 else 'are'} declared")
    if devices != there.devices:
        other.append(f"the model is split over {devices} devices")
    if other:
        yield info(
            FindingReason.PROFILE_NOT_MEASURED_HERE,
            f"the profile for {profile.title} was measured with {there.requests:,} requests in flight on {there.devices} "
            f"device{'s' * (there.devices > 1)}, and here {' and '.join(other)}: whether its settings are the fastest for that "
            "is not known; compare with kubectl vlm bench, or set engine.tuning: Off for the engine's own choices",
            "spec.workload.concurrency" if other[0].endswith("declared") else "spec.parallelism.tensor",
        )


def small_decode_graph(plan: CheckInput) -> Iterator[Finding]:
    """Batches of requests that run at once and are larger than the largest CUDA graph."""
    name = "cuda_graph_max_bs_decode"
    most, running = decode_graph(plan.context, plan.declared), running_share(plan.context, plan.declared)
    if most is None or running is None or running <= most:
        return
    choice = plan.context.choices.settings.get(name)
    yield info(
        FindingReason.DECODE_GRAPH_SMALL,
        f"up to {running:,} requests run at once on a rank, and the engine's CUDA graphs hold batches of up to {most:,}: larger "
        f"ones decode without a graph, which is slower; set engine.settings.{name}: {running}, if the memory for more graphs "
        "can be spared, or declare fewer requests",
        "spec.workload.concurrency" if choice is None else choice.path,
    )


def unused_cuda_ipc(plan: CheckInput) -> Iterator[Finding]:
    """An allocator setting that rules CUDA IPC out."""
    setting, declined = plan.declared.get("mm_feature_transport"), declines_cuda_ipc(plan.context)
    if setting is None or not setting.applied or setting.rule != NO_CUDA_IPC or declined is None:
        return
    path, reason = declined
    if "expandable_segments" in reason:
        yield warning(
            FindingReason.CUDA_IPC_NOT_USED,
            f"{reason}, so image features go through the CPU; remove expandable_segments to use CUDA IPC",
            path,
        )


def certificate_for_loopback(plan: CheckInput) -> Iterator[Finding]:
    """Authorities with which the engine verifies its own certificate."""
    choice = plan.context.choices.settings.get(AUTHORITIES)
    if choice is not None and choice.value:
        yield warning(
            FindingReason.CERTIFICATE_FOR_LOOPBACK,
            f"with {AUTHORITIES} the engine verifies its own certificate while it warms up, over its loopback address, and "
            "exits after some minutes if the certificate does not cover that address: issue it for IP 127.0.0.1 too, or "
            f"remove {AUTHORITIES}, which requires no client certificate either way",
            choice.path,
        )
