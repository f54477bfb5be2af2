"""Each condition of a VLMService by itself: what was seen in, a verdict out."""

from __future__ import annotations

from vlm_api.plan import Finding
from vlm_api.report import Phase
from vlm_api.spec import Device
from vlm_api.status import ConditionStatus, VLMService
from vlm_operator.controller import reasons
from vlm_operator.controller.observed import Observed, Verdict
from vlm_operator.controller.pods import PodView

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN

_LOADED = frozenset(
    {Phase.CAPTURING_GRAPHS, Phase.WARMING_UP, Phase.FIRST_IMAGE, Phase.READY, Phase.DRAINING, Phase.STOPPED}
)
# What a pod asks of a node, and no node can ever give, whatever its memory.
_HARDWARE_ERRORS = frozenset({"SharesAreNotDevices", "TensorParallelOverMIG", "TooManyDevices"})
# Failures that mean that the model itself could not be found or read.
_MODEL_FAILURES = frozenset({"ModelNotFound", "ModelAccessDenied", "ModelUnreadable", "HubUnreachable"})


def hardware_resolved(seen: Observed) -> Verdict:
    """Whether the plan was made for hardware that the cluster has."""
    if seen.plan is None:
        return _unplanned(seen)
    if error := next((f for f in seen.plan.errors if _about_hardware(f)), None):
        return Verdict(FALSE, error.reason, error.message)
    hardware = seen.plan.hardware
    if hardware.device == Device.CPU.value:
        return Verdict(TRUE, reasons.CPU, "planned for the CPU, as spec.hardware.device says")
    if hardware.nodes:
        shown = ", ".join(hardware.nodes[:5]) + (f" and {len(hardware.nodes) - 5} more" if hardware.nodes[5:] else "")
        memory = f", {hardware.memory_mib} MiB each" if hardware.memory_mib else ""
        capability = f", compute capability {hardware.compute_capability}" if hardware.compute_capability else ""
        product = hardware.product or "GPUs that no label describes"
        return Verdict(
            TRUE, reasons.HARDWARE_FOUND, f"{product}{capability}{memory} on {shown} (source: {hardware.source})"
        )
    if any(p.ready for p in seen.pods):
        return Verdict(
            TRUE, reasons.DEFAULTS_USED, "pods run, but no node describes its GPUs: engine defaults are used"
        )
    why = f"{hardware.passed_over[0].node} {hardware.passed_over[0].reason}" if hardware.passed_over else "no node"
    return Verdict(
        UNKNOWN,
        reasons.NO_NODE_YET,
        f"no node has the hardware yet ({why}): pods wait, and the plan is made anew when a node comes",
    )


def overrides_resolved(seen: Observed) -> Verdict:
    """Whether every setting that the user wrote can be passed on."""
    if seen.invalid is not None:
        return Verdict(FALSE, reasons.INVALID_SPEC, str(seen.invalid))
    if seen.plan is None:
        return _unplanned(seen)
    if error := next((f for f in seen.plan.errors if _about_engine(f)), None):
        return Verdict(FALSE, error.reason, error.message)
    applied = [s for s in seen.plan.settings if s.applied]
    theirs = sum(s.source.value == "user" for s in applied)
    return Verdict(
        TRUE, reasons.RESOLVED, f"{theirs} settings by the user and {len(applied) - theirs} by rules and profiles"
    )


def resource_fit(seen: Observed) -> Verdict:
    """Whether the model and its traffic fit into what is there."""
    if seen.plan is None:
        return _unplanned(seen)
    errors = [f for f in seen.plan.errors if not _about_hardware(f) and not _about_engine(f)]
    if errors:
        return Verdict(FALSE, errors[0].reason, errors[0].message)
    memory, hardware = seen.plan.memory, seen.plan.hardware
    if memory.weights_mib is None or (hardware.memory_mib is None and hardware.device != Device.CPU.value):
        missing = "the model's size" if memory.weights_mib is None else "the GPU's memory"
        return Verdict(TRUE, reasons.NOT_CHECKED, f"not checked, since {missing} is unknown")
    parts = {
        "weights": memory.weights_mib,
        "reserve": memory.reserved_mib,
        "image pool": memory.feature_pool_mib,
        "embedding cache": memory.embedding_cache_mib or None,
        "KV cache": memory.kv_cache_mib,
    }
    told = ", ".join(f"{name} {mib} MiB" for name, mib in parts.items() if mib is not None)
    of = f" of {hardware.memory_mib} MiB a device" if hardware.memory_mib else ""
    return Verdict(TRUE, reasons.FITS, f"{told}{of}")


def available(service: VLMService, seen: Observed) -> Verdict:
    """Whether somebody who sends a request gets an answer.

    Not the Deployment's own condition of this name: with one replica that may be missing it is True without any pod.
    """
    numbers = seen.replicas
    if numbers.available > 0:
        return Verdict(
            TRUE, reasons.REPLICAS_AVAILABLE, f"{numbers.available} of {numbers.wanted} replicas answer requests"
        )
    if service.spec.suspend:
        return Verdict(FALSE, reasons.SUSPENDED, "suspended: set spec.suspend to false to start")
    if seen.problem is None and seen.plan is not None and not seen.plan.errors and numbers.wanted == 0:
        return Verdict(FALSE, reasons.SCALED_TO_ZERO, "zero replicas are wanted: raise spec.replicas to start")
    return Verdict(FALSE, reasons.NO_REPLICA_AVAILABLE, f"none of {numbers.wanted} replicas answers requests")


def progressing(service: VLMService, seen: Observed) -> Verdict:
    """Whether pods are being started or replaced, and what stands in the way."""
    numbers = seen.replicas
    if seen.inspecting is not None:
        return Verdict(TRUE, reasons.INSPECTING, f"{seen.inspecting}; the plan is made with what it finds")
    if seen.plan is None or seen.plan.errors or seen.problem is not None:
        return Verdict(FALSE, reasons.NOT_STARTED, "nothing is being changed; see Ready for the reason")
    if obstacle := obstacle_of(seen):
        return Verdict(FALSE, *obstacle)
    # The pods that are being stopped still count as present, but belong to nothing that is being started.
    done = numbers.settled and numbers.updated >= numbers.wanted and numbers.available >= numbers.wanted
    if done and numbers.present <= numbers.wanted:
        return Verdict(FALSE, reasons.COMPLETE, f"all {numbers.wanted} replicas run plan {seen.plan.hash}")
    if numbers.overdue:
        return Verdict(FALSE, reasons.DEADLINE_EXCEEDED, f"{numbers.overdue}: see the pods with kubectl vlm status")
    return Verdict(
        TRUE,
        reasons.ROLLING_OUT,
        f"{numbers.updated} of {numbers.wanted} replicas run plan {seen.plan.hash}, {numbers.available} answer requests",
    )


def obstacle_of(seen: Observed) -> tuple[str, str] | None:
    """What keeps pods of the present plan from serving: reason and message of the first in the order of names."""
    pods = _present(seen)
    for pod in pods:
        if pod.failure is not None:
            return pod.failure.reason, f"{pod.failure.message}"
    for pod in pods:
        if pod.unschedulable is not None:
            return reasons.UNSCHEDULABLE, f"pod {pod.name}: {pod.unschedulable}"
    if seen.replicas.unmade and seen.replicas.updated < seen.replicas.wanted:
        return reasons.PODS_REFUSED, f"the API server lets no pod be made: {seen.replicas.unmade}"
    if seen.missing:
        return reasons.PODS_MISSING, seen.missing
    return None


def model_ready(seen: Observed) -> Verdict:
    """Whether an engine has loaded the model."""
    if any(p.ready for p in seen.pods):
        return Verdict(TRUE, reasons.MODEL_LOADED, "an engine has loaded the model")
    if any(r.phase in _LOADED for r in seen.reports.values()):
        return Verdict(TRUE, reasons.MODEL_LOADED, "an engine has loaded the model")
    if seen.inspecting is not None:
        return Verdict(UNKNOWN, reasons.INSPECTING, seen.inspecting)
    for pod in _present(seen):
        if pod.failure is not None and pod.failure.reason in _MODEL_FAILURES:
            return Verdict(FALSE, pod.failure.reason, pod.failure.message)
    if seen.inspection is not None and seen.inspection.failure is not None:
        return Verdict(FALSE, seen.inspection.failure.reason, seen.inspection.failure.message)
    return Verdict(UNKNOWN, reasons.MODEL_NOT_LOADED_YET, "no engine has loaded the model yet")


def ready(service: VLMService, seen: Observed, others: dict[str, Verdict]) -> Verdict:
    """The sum of it all: True when the service answers and everything that was decided holds."""
    if seen.invalid is not None:
        return Verdict(FALSE, reasons.INVALID_SPEC, str(seen.invalid))
    if seen.problem is not None:
        return Verdict(FALSE, seen.problem.reason, seen.problem.message)
    if seen.plan is not None and seen.plan.errors:
        error = seen.plan.errors[0]
        kept = (
            f" ({seen.replicas.available} replicas of the plan before still answer)" if seen.replicas.available else ""
        )
        return Verdict(FALSE, error.reason, f"{error.message}{kept}")
    if others["Available"].status is TRUE:
        for name in ("HardwareResolved", "OverridesResolved", "ResourceFit"):
            if others[name].status is not TRUE:
                return Verdict(FALSE, others[name].reason, others[name].message)
        if others["OverridesEffective"].status is FALSE:
            return Verdict(FALSE, others["OverridesEffective"].reason, others["OverridesEffective"].message)
        return Verdict(TRUE, reasons.SERVING, others["Available"].message)
    if service.spec.suspend or others["Available"].reason == reasons.SCALED_TO_ZERO:
        return Verdict(FALSE, others["Available"].reason, others["Available"].message)
    if seen.inspecting is not None:
        return Verdict(FALSE, reasons.INSPECTING, others["Progressing"].message)
    if obstacle := obstacle_of(seen):
        return Verdict(FALSE, *obstacle)
    if others["Progressing"].reason == reasons.DEADLINE_EXCEEDED:
        return Verdict(FALSE, *others["Progressing"][1:])
    return Verdict(FALSE, reasons.STARTING, others["Progressing"].message)


def _present(seen: Observed) -> list[PodView]:
    """Pods of the plan in force, by name; those that are going do not count."""
    plan_hash = seen.plan.hash if seen.plan else ""
    return sorted((p for p in seen.pods if not p.deleting and p.plan_hash == plan_hash), key=lambda p: p.name)


def _about_hardware(finding: Finding) -> bool:
    return finding.reason in _HARDWARE_ERRORS or (finding.path or "").startswith("spec.hardware")


def _about_engine(finding: Finding) -> bool:
    return (finding.path or "").startswith("spec.engine")


def _unplanned(seen: Observed) -> Verdict:
    if seen.inspecting is not None:
        return Verdict(UNKNOWN, reasons.INSPECTING, f"no plan yet: {seen.inspecting}")
    if seen.problem is not None:
        return Verdict(UNKNOWN, seen.problem.reason, f"no plan yet: {seen.problem.message}")
    return Verdict(UNKNOWN, reasons.INVALID_SPEC, "no plan was made; see OverridesResolved")
