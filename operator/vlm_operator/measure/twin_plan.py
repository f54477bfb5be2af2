"""What was planned for a twin, held against the plan of its service: whether it can run, and whether the two may be
compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vlm_api.plan import PlanHardware, ServingPlan, Setting
from vlm_api.status import PlanStatus
from vlm_operator.measure.twin import Change, word


@dataclass(frozen=True)
class Contrast:
    """In what a twin's plan differs from that of its service."""

    change: Change | None
    """With what really follows; None: none was asked for."""
    others: tuple[tuple[str, Any, Any], ...]
    """What differs besides: name, the service's, the twin's. None: left to the engine."""
    refusal: str | None
    """Why the two must not be compared."""

    def note(self, service: str) -> str | None:
        """What a person should know; None where nothing else differs."""
        if not self.others:
            return None
        told = "; ".join(f"{name}: {_shown(ours)} and {_shown(theirs)}" for name, ours, theirs in self.others)
        beside = f"besides {self.change.name} " if self.change is not None else ""
        return f"{beside}{service} and its twin differ in: {told}"


def contrast(ours: PlanStatus, theirs: PlanStatus, change: Change | None) -> Contrast:
    """The service's plan in force, and the twin's."""
    found = differences(ours.settings, theirs.settings)
    refusal = _unlike(ours, theirs)
    if change is None:
        return Contrast(None, tuple(found), refusal)
    twins = next((s for s in theirs.settings if s.name == change.name and s.applied), None)
    if change.value is None:
        change = replace(change, follows=None if twins is None else twins.value)
    elif twins is not None:
        # As the engine will have it: 64k is 64000.
        change = replace(change, value=twins.value)
    if refusal is None and change.name not in {name for name, _, _ in found}:
        refusal = _same(change, twins)
    return Contrast(change, tuple(each for each in found if each[0] != change.name), refusal)


def _same(change: Change, twins: Setting | None) -> str:
    if change.value is None and twins is not None:
        return (
            f"without your own value the plan sets {change.name} to {word(twins.value)} all the same ({twins.rule}): "
            f"compare with another value: --set {change.name}=VALUE"
        )
    has = "leaves it to the engine" if twins is None else f"has {word(twins.value)}"
    return f"the twin {has} as the service does, so there is nothing to compare: choose another value for {change.name}"


def _unlike(ours: PlanStatus, theirs: PlanStatus) -> str | None:
    """Why what is measured would not be the setting."""
    if ours.engine is not None and theirs.engine is not None and ours.engine.image != theirs.engine.image:
        return (
            f"the service runs image {ours.engine.image}, its twin would run {theirs.engine.image}: "
            "set spec.engine.image, so that both have the same"
        )
    if ours.hardware is None or theirs.hardware is None or _machine(ours.hardware) == _machine(theirs.hardware):
        return None
    return (
        f"the service was planned for {_words(ours.hardware)}, its twin for {_words(theirs.hardware)}: hold the service "
        "to one kind with spec.hardware.products, and see that one of them is free"
    )


def _machine(hardware: PlanHardware) -> tuple[Any, ...]:
    return hardware.device, hardware.product, hardware.compute_capability, hardware.memory_mib, hardware.sharing


def _words(hardware: PlanHardware) -> str:
    if hardware.device == "cpu":
        return "the CPU"
    memory = "" if hardware.memory_mib is None else f" with {hardware.memory_mib:,} MiB"
    sharing = "" if hardware.sharing.value == "none" else f", shared by {hardware.sharing.value}"
    return f"{hardware.product or hardware.compute_capability or 'a GPU that no label names'}{memory}{sharing}"


def refusal(plan: ServingPlan) -> str | None:
    """Why a twin of one replica cannot run now; None where it can."""
    if plan.errors:
        return "; ".join(f.message for f in plan.findings if f.severity.value == "Error")
    waits = [f.message for f in plan.findings if f.reason in ("DevicesInUse", "TooFewNodes")]
    if waits:
        return waits[0]
    if plan.hardware.device != "cpu" and not plan.hardware.nodes:
        return "no node offers a GPU on which it could run"
    return None


def no_room(plan: ServingPlan, free: Sequence[int], replicas: int) -> str | None:
    """Why so many replicas cannot run now; None where they can. ``free``: devices of each node of the plan that nobody has
    asked for."""
    each = plan.resources.devices_per_pod
    if not each:
        return None
    wanted, room = replicas * plan.resources.pods, sum(devices // each for devices in free)
    if room >= wanted:
        return None
    return (
        f"it takes {wanted} pods of {each} devices, as many as the service, and there is room for {room} on these nodes now: "
        f"scale the service down to {max(room // plan.resources.pods, 1)} and measure again, or wait until others end"
    )


def differences(first: Sequence[Setting], second: Sequence[Setting]) -> list[tuple[str, Any, Any]]:
    """Settings that two plans pass with different values: name, first, second. None: left to the engine."""

    def applied(settings: Sequence[Setting]) -> dict[str, Any]:
        return {s.name: s.value for s in settings if s.applied}

    one, two = applied(first), applied(second)
    return [(name, one.get(name), two.get(name)) for name in sorted({*one, *two}) if one.get(name) != two.get(name)]


def _shown(value: object) -> str:
    return "the engine's own" if value is None else word(value)
