"""The plan of a twin against the plan of its service: whether the twin can run, and whether the two may be compared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from vlm_api.plan import PlanHardware, ServingPlan, Setting
from vlm_api.reasons import FindingReason
from vlm_api.status import PlanStatus
from vlm_bench.twins.twin import Change, word

# Findings of a plan whose pods would wait.
WAITS: Final = (FindingReason.DEVICES_IN_USE, FindingReason.TOO_FEW_NODES)


@dataclass(frozen=True)
class Contrast:
    """How a twin's plan differs from that of its service."""

    change: Change | None
    """With the values that the twin's plan really has; None: the same settings."""
    others: tuple[tuple[str, Any, Any], ...]
    """Other differences: name, the service's value, the twin's. None: the engine's default."""
    refusal: str | None
    """Why the two must not be compared."""

    def note(self, service: str) -> str | None:
        """A note on the other differences; None without any."""
        if not self.others:
            return None
        values = "; ".join(f"{name}: {_shown(ours)} and {_shown(theirs)}" for name, ours, theirs in self.others)
        besides = f"besides {self.change.name} " if self.change is not None else ""
        return f"{besides}{service} and its twin differ in: {values}"


def contrast(ours: PlanStatus, theirs: PlanStatus, change: Change | None) -> Contrast:
    """Compares the service's plan with the twin's."""
    found = differences(ours.settings, theirs.settings)
    refusal = _unlike(ours, theirs)
    if change is None:
        return Contrast(None, tuple(found), refusal)
    twins = next((s for s in theirs.settings if s.name == change.name and s.applied), None)
    if change.value is None:
        change = replace(change, follows=None if twins is None else twins.value)
    elif twins is not None:
        # As the engine reads it: 64k is 64000.
        change = replace(change, value=twins.value)
    if refusal is None and change.name not in {name for name, _, _ in found}:
        refusal = _same(change, twins)
    return Contrast(change, tuple(each for each in found if each[0] != change.name), refusal)


def _same(change: Change, twins: Setting | None) -> str:
    if change.value is None and twins is not None:
        return (
            f"without your value the plan sets {change.name} to {word(twins.value)} as well ({twins.rule}): "
            f"compare with another value: --set {change.name}=VALUE"
        )
    value = "the engine's default" if twins is None else word(twins.value)
    return f"twin and service both have {value}, so there is nothing to compare: choose another value for {change.name}"


def _unlike(ours: PlanStatus, theirs: PlanStatus) -> str | None:
    """Why the two would differ in more than settings."""
    if ours.engine is not None and theirs.engine is not None and ours.engine.image != theirs.engine.image:
        return (
            f"the service runs image {ours.engine.image}, its twin would run {theirs.engine.image}: "
            "set spec.engine.image, so that both run the same"
        )
    if ours.hardware is None or theirs.hardware is None or _machine(ours.hardware) == _machine(theirs.hardware):
        return None
    return (
        f"the service was planned for {_words(ours.hardware)}, its twin for {_words(theirs.hardware)}: restrict the "
        "service to one product with spec.hardware.products, and free one of those GPUs"
    )


def _machine(hardware: PlanHardware) -> tuple[Any, ...]:
    return hardware.device, hardware.product, hardware.compute_capability, hardware.memory_mib, hardware.sharing


def _words(hardware: PlanHardware) -> str:
    if hardware.device == "cpu":
        return "the CPU"
    memory = "" if hardware.memory_mib is None else f" with {hardware.memory_mib:,} MiB"
    sharing = "" if hardware.sharing.value == "none" else f", shared by {hardware.sharing.value}"
    return f"{hardware.product or hardware.compute_capability or 'an unlabelled GPU'}{memory}{sharing}"


def refusal(plan: ServingPlan) -> str | None:
    """Why a twin of one replica cannot run now; None if it can."""
    if plan.errors:
        return "; ".join(f.message for f in plan.findings if f.severity.value == "Error")
    if waits := [f.message for f in plan.findings if f.reason in WAITS]:
        return waits[0]
    if plan.hardware.device != "cpu" and not plan.hardware.nodes:
        return "no node has a GPU that it could use: add one, or measure without a twin"
    return None


def no_room(plan: ServingPlan, free: Sequence[int], replicas: int) -> str | None:
    """Why so many replicas cannot run now; None if they can. ``free``: unrequested devices of each node of the plan."""
    each = plan.resources.devices_per_pod
    if not each:
        return None
    wanted, room = replicas * plan.resources.pods, sum(devices // each for devices in free)
    if room >= wanted:
        return None
    return (
        f"it needs {wanted} pods of {each} devices, as many as the service, and these nodes have room for {room} now: "
        f"scale the service down to {max(room // plan.resources.pods, 1)}, or wait until other pods end"
    )


def differences(first: Sequence[Setting], second: Sequence[Setting]) -> list[tuple[str, Any, Any]]:
    """Settings that differ between two plans: name, first, second value. None: the engine's default."""

    def applied(settings: Sequence[Setting]) -> dict[str, Any]:
        return {s.name: s.value for s in settings if s.applied}

    one, two = applied(first), applied(second)
    return [(name, one.get(name), two.get(name)) for name in sorted({*one, *two}) if one.get(name) != two.get(name)]


def _shown(value: object) -> str:
    return "engine default" if value is None else word(value)
