"""Compares the GPUs that are there with those that the plan was made for. Pure."""

from __future__ import annotations

from typing import Final

from vlm_api.plan import ExpectedHardware
from vlm_api.report import FoundDevice, FoundHardware

# The planned memory comes from a node's label, which counts in other units and leaves other parts out.
MEMORY_TOLERANCE: Final = 0.03


def shortcomings(expected: ExpectedHardware, found: FoundHardware) -> list[str]:
    """What there is less of than planned, one sentence each; empty where the plan holds or nothing can be said.

    More than planned is no shortcoming, and what the driver does not say is not held against it.
    """
    if expected.device != "cuda" or found.driver is None:
        return []
    problems: list[str] = []
    if len(found.devices) < expected.devices:
        why = f" ({found.note})" if found.note else ""
        problems.append(f"{expected.devices} devices were planned, {len(found.devices)} are in the pod{why}")
    for number, device in enumerate(found.devices):
        name = f"device {number} ({device.name or 'unnamed'})"
        problems += [f"{name} {problem}" for problem in _device(expected, device)]
    return problems


def _device(expected: ExpectedHardware, device: FoundDevice) -> list[str]:
    problems: list[str] = []
    if device.mig and not expected.mig:
        problems.append("is a MIG slice, a whole GPU was planned")
    planned, there = expected.compute_capability, device.compute_capability
    if planned is not None and there is not None and _version(there) < _version(planned):
        problems.append(f"has compute capability {there}, {planned} was planned")
    memory = expected.memory_mib
    if memory is not None and device.memory_mib is not None and device.memory_mib < memory * (1 - MEMORY_TOLERANCE):
        problems.append(f"has {device.memory_mib} MiB, {memory} MiB were planned")
    return problems


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
