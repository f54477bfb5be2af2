"""The engine's release and the user's settings for it: known bugs, and settings with side effects."""

from collections.abc import Iterator
from typing import Any

from vlm_api.plan import Finding, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.arguments import AUTHORITIES
from vlm_operator.checks.types import CheckInput
from vlm_operator.sglang.catalogue.releases import Fault
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
