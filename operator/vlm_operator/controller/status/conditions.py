"""The conditions of one pool: an observation in, verdicts out. Pure.

Each message says what is the case and ends with the next step, if there is one.
"""

from collections.abc import Mapping
from typing import Any, Final

from vlm_api import reasons
from vlm_api.plan import About, Finding, ServingPlan
from vlm_api.reasons import Conditions
from vlm_api.report import Phase
from vlm_api.spec import Device
from vlm_api.status import Condition
from vlm_operator.controller.status.drift import hardware_drift
from vlm_operator.controller.status.effectiveness import overrides_effective
from vlm_operator.controller.status.observation import FALSE, TRUE, UNKNOWN, PoolObservation, Verdict

# What must hold for a pool to be Ready, and by which order the first of equally bad ones is reported.
DEPENDENTS: Final = (
    Conditions.AVAILABLE,
    Conditions.HARDWARE_RESOLVED,
    Conditions.OVERRIDES_RESOLVED,
    Conditions.RESOURCE_FIT,
    Conditions.OVERRIDES_EFFECTIVE,
)
WORST_FIRST: Final = (FALSE, UNKNOWN, TRUE)

_LOADED: Final = frozenset(
    {Phase.CAPTURING_GRAPHS, Phase.WARMING_UP, Phase.FIRST_IMAGE, Phase.READY, Phase.DRAINING, Phase.STOPPED}
)
# Failures that mean that the model itself could not be found or read.
_MODEL_FAILURES: Final = frozenset({"ModelNotFound", "ModelAccessDenied", "ModelUnreadable", "HubUnreachable"})


def judge(pool: PoolObservation, before: Mapping[str, Condition]) -> dict[str, Verdict]:
    """Every condition of a pool by type, Ready first. ``before`` are the service's previous conditions by type."""
    verdicts = {
        Conditions.AVAILABLE: available(pool),
        Conditions.PROGRESSING: progressing(pool),
        Conditions.HARDWARE_RESOLVED: hardware_resolved(pool),
        Conditions.OVERRIDES_RESOLVED: overrides_resolved(pool),
        Conditions.RESOURCE_FIT: resource_fit(pool),
        Conditions.MODEL_READY: model_ready(pool),
        Conditions.OVERRIDES_EFFECTIVE: overrides_effective(pool, before.get(Conditions.OVERRIDES_EFFECTIVE)),
        Conditions.HARDWARE_DRIFT: hardware_drift(pool),
    }
    if pool.spec.scaling is not None:
        verdicts[Conditions.SCALING_ACTIVE] = scaling_active(pool.spec.scaling.max_replicas, pool.autoscaler)
    return {Conditions.READY: ready(pool, verdicts)} | verdicts


def ready(pool: PoolObservation, verdicts: Mapping[str, Verdict]) -> Verdict:
    """True if the pool answers and everything that was decided holds: the worst dependent wins, False before Unknown."""
    if blocker := _blocker(pool):
        count = pool.replicas.available
        kept = f" ({count} replicas of the plan in force are still available)" if count and pool.problem is None else ""
        return Verdict(FALSE, blocker[0], f"{blocker[1]}{kept}")
    dependents = {name: verdicts[name] for name in DEPENDENTS}
    if dependents[Conditions.OVERRIDES_EFFECTIVE].status is UNKNOWN:
        del dependents[Conditions.OVERRIDES_EFFECTIVE]  # simulated and older engines cannot be asked
    worst = min(dependents.values(), key=lambda v: WORST_FIRST.index(v.status))
    if worst.status is TRUE:
        return Verdict(TRUE, reasons.SERVING, verdicts[Conditions.AVAILABLE].message)
    if worst.reason != reasons.NO_REPLICA_AVAILABLE:
        return Verdict(FALSE, worst.reason, worst.message)
    # Why no replica is available, Progressing knows.
    progress = verdicts[Conditions.PROGRESSING]
    on_its_way = progress.reason in (reasons.ROLLING_OUT, reasons.NOT_STARTED, reasons.COMPLETE)
    return Verdict(FALSE, reasons.STARTING if on_its_way else progress.reason, progress.message)


def available(pool: PoolObservation) -> Verdict:
    """Whether requests are answered.

    Not the Deployment's own condition of this name: with one replica and maxUnavailable 1 that is True without any pod.
    """
    numbers = pool.replicas
    if numbers.available > 0:
        message = f"{numbers.available} of {numbers.wanted} replicas are available"
        return Verdict(TRUE, reasons.REPLICAS_AVAILABLE, message)
    if pool.spec.suspend:
        return Verdict(FALSE, reasons.SUSPENDED, "the service is suspended: set spec.suspend to false to start it")
    if error := _error_about(pool.plan, About.CLUSTER):
        return Verdict(FALSE, error.reason, error.message)
    if pool.problem is None and pool.plan is not None and not pool.plan.errors and numbers.wanted == 0:
        return Verdict(FALSE, reasons.SCALED_TO_ZERO, "zero replicas are requested: raise spec.replicas to start")
    return Verdict(FALSE, reasons.NO_REPLICA_AVAILABLE, f"0 of {numbers.wanted} replicas are available; see Ready")


def progressing(pool: PoolObservation) -> Verdict:
    """Whether pods are being started or replaced, and what blocks them."""
    numbers = pool.replicas
    if pool.inspecting is not None:
        return Verdict(TRUE, reasons.INSPECTING, f"{pool.inspecting}; the plan follows")
    if pool.plan is None or pool.plan.errors or pool.problem is not None:
        return Verdict(FALSE, reasons.NOT_STARTED, "no rollout is in progress; see Ready for the reason")
    if obstacle := _obstacle(pool):
        return Verdict(FALSE, *obstacle)
    # Pods that are being stopped still count as present, but belong to nothing that is being started.
    done = numbers.settled and numbers.updated >= numbers.wanted and numbers.available >= numbers.wanted
    if done and numbers.present <= numbers.wanted:
        return Verdict(FALSE, reasons.COMPLETE, f"all {numbers.wanted} replicas run plan {pool.plan.hash}")
    if numbers.overdue:
        return Verdict(FALSE, reasons.DEADLINE_EXCEEDED, f"{numbers.overdue}: see its pods with kubectl vlm status")
    updated = f"{numbers.updated} of {numbers.wanted} replicas run plan {pool.plan.hash}"
    return Verdict(TRUE, reasons.ROLLING_OUT, f"{updated}, {numbers.available} are available")


def hardware_resolved(pool: PoolObservation) -> Verdict:
    """Whether the plan was made for hardware that the cluster has."""
    if pool.plan is None:
        return _unplanned(pool)
    if error := _error_about(pool.plan, About.HARDWARE):
        return Verdict(FALSE, error.reason, error.message)
    hardware = pool.plan.hardware
    if hardware.device == Device.CPU.value:
        return Verdict(TRUE, reasons.CPU, "planned for the CPU, as spec.hardware.device requests")
    if hardware.nodes:
        shown = ", ".join(hardware.nodes[:5]) + (f" and {len(hardware.nodes) - 5} more" if hardware.nodes[5:] else "")
        memory = f", {hardware.memory_mib} MiB each" if hardware.memory_mib else ""
        capability = f", compute capability {hardware.compute_capability}" if hardware.compute_capability else ""
        product = hardware.product or "GPUs without labels"
        message = f"{product}{capability}{memory} on {shown} (source: {hardware.source})"
        return Verdict(TRUE, reasons.HARDWARE_FOUND, message)
    if any(p.ready for p in pool.pods):
        message = "pods run, but no node describes its GPUs: the engine's defaults are used"
        return Verdict(TRUE, reasons.DEFAULTS_USED, message)
    why = f"{hardware.passed_over[0].node} {hardware.passed_over[0].reason}" if hardware.passed_over else "no node"
    message = f"no node has suitable hardware yet ({why}): add one, and the plan is made again"
    return Verdict(UNKNOWN, reasons.NO_NODE_YET, message)


def overrides_resolved(pool: PoolObservation) -> Verdict:
    """Whether every setting that the user wrote can be passed on."""
    if pool.invalid is not None:
        return Verdict(FALSE, reasons.INVALID_SPEC, str(pool.invalid))
    if pool.plan is None:
        return _unplanned(pool)
    if error := _error_about(pool.plan, About.ENGINE):
        return Verdict(FALSE, error.reason, error.message)
    applied = [s for s in pool.plan.settings if s.applied]
    users = sum(s.source.value == "user" for s in applied)
    message = f"{users} settings from the user, {len(applied) - users} from rules and profiles"
    return Verdict(TRUE, reasons.RESOLVED, message)


def resource_fit(pool: PoolObservation) -> Verdict:
    """Whether the model and its traffic fit into the hardware."""
    if pool.plan is None:
        return _unplanned(pool)
    if error := _error_about(pool.plan, About.RESOURCES):
        return Verdict(FALSE, error.reason, error.message)
    memory, hardware = pool.plan.memory, pool.plan.hardware
    if memory.weights_mib is None or (hardware.memory_mib is None and hardware.device != Device.CPU.value):
        missing = "the model's size" if memory.weights_mib is None else "the GPU's memory"
        return Verdict(TRUE, reasons.NOT_CHECKED, f"not checked, because {missing} is unknown")
    parts = {
        "weights": memory.weights_mib,
        "reserved": memory.reserved_mib,
        "feature pool": memory.feature_pool_mib,
        "embedding cache": memory.embedding_cache_mib or None,
        "KV cache": memory.kv_cache_mib,
    }
    total = ", ".join(f"{name} {mib} MiB" for name, mib in parts.items() if mib is not None)
    of = f" of {hardware.memory_mib} MiB per device" if hardware.memory_mib else ""
    return Verdict(TRUE, reasons.FITS, f"{total}{of}")


def model_ready(pool: PoolObservation) -> Verdict:
    """Whether an engine has loaded the model."""
    if any(p.ready for p in pool.pods) or any(r.phase in _LOADED for r in pool.reports.values()):
        return Verdict(TRUE, reasons.MODEL_LOADED, "an engine has loaded the model")
    if pool.inspecting is not None:
        return Verdict(UNKNOWN, reasons.INSPECTING, pool.inspecting)
    for pod in pool.current_pods:
        if pod.failure is not None and pod.failure.reason in _MODEL_FAILURES:
            return Verdict(FALSE, pod.failure.reason, pod.failure.message)
    if pool.inspection is not None and pool.inspection.failure is not None:
        return Verdict(FALSE, pool.inspection.failure.reason, pool.inspection.failure.message)
    return Verdict(UNKNOWN, reasons.MODEL_NOT_LOADED_YET, "no engine has loaded the model yet")


def scaling_active(most: int, autoscaler: Mapping[str, Any] | None) -> Verdict:
    """What the HorizontalPodAutoscaler reports about its metric; ``most`` is its maximum of replicas."""
    conditions = ((autoscaler or {}).get("status") or {}).get("conditions") or []
    by_type: Mapping[str, Mapping[str, Any]] = {str(c.get("type")): c for c in conditions}
    active, limited = by_type.get("ScalingActive", {}), by_type.get("ScalingLimited", {})
    message = f"{active.get('reason')}: {active.get('message')}"
    if active.get("status") == "True":
        if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
            message += f"; the metric asks for more than {most} replicas: raise spec.scaling.maxReplicas to allow them"
        return Verdict(TRUE, reasons.AUTOSCALER_ACTIVE, message)
    if active.get("status") == "False":
        if active.get("reason") == "ScalingDisabled":
            return Verdict(FALSE, reasons.AUTOSCALER_OFF, message)
        step = "the number of replicas does not change; docs/autoscaling.md shows how to serve the metric"
        return Verdict(FALSE, reasons.METRIC_MISSING, f"{message}; {step}"[:4096])
    return Verdict(UNKNOWN, reasons.AUTOSCALER_SILENT, "the HorizontalPodAutoscaler has not reported yet")


def badness(condition: str, verdict: Verdict) -> int:
    """How bad a verdict is among those of several pools: the smallest number is the worst."""
    if condition == Conditions.PROGRESSING:
        calm = {reasons.COMPLETE: 3, reasons.NOT_STARTED: 2}
        return calm.get(verdict.reason, 1 if verdict.status is TRUE else 0)
    worst_first = WORST_FIRST[::-1] if condition == Conditions.HARDWARE_DRIFT else WORST_FIRST
    return worst_first.index(verdict.status)


def _blocker(pool: PoolObservation) -> tuple[str, str] | None:
    """Reason and message of what keeps the spec from being applied at all."""
    if pool.invalid is not None:
        return reasons.INVALID_SPEC, str(pool.invalid)
    if pool.problem is not None:
        return pool.problem.reason, pool.problem.message
    if pool.plan is not None and pool.plan.errors:
        return pool.plan.errors[0].reason, pool.plan.errors[0].message
    return None


def _obstacle(pool: PoolObservation) -> tuple[str, str] | None:
    """What keeps pods of the current plan from serving: reason and message of the first in the order of names."""
    for pod in pool.current_pods:
        if pod.failure is not None:
            return pod.failure.reason, pod.failure.message
    for pod in pool.current_pods:
        if pod.unschedulable is not None:
            return reasons.UNSCHEDULABLE, f"pod {pod.name}: {pod.unschedulable}"
    if pool.replicas.failure and pool.replicas.updated < pool.replicas.wanted:
        return reasons.PODS_REFUSED, f"A quota or admission policy is blocking pod creation: {pool.replicas.failure}"
    if pool.missing:
        return reasons.PODS_MISSING, pool.missing
    return None


def _error_about(plan: ServingPlan | None, about: About) -> Finding | None:
    return next((f for f in plan.errors if f.about is about), None) if plan is not None else None


def _unplanned(pool: PoolObservation) -> Verdict:
    if pool.inspecting is not None:
        return Verdict(UNKNOWN, reasons.INSPECTING, f"no plan yet: {pool.inspecting}")
    if pool.problem is not None:
        return Verdict(UNKNOWN, pool.problem.reason, f"no plan yet: {pool.problem.message}")
    return Verdict(UNKNOWN, reasons.INVALID_SPEC, "no plan, because the spec is invalid; see OverridesResolved")
