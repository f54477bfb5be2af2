"""Compares the pod's GPUs with those that the plan was made for. Pure."""

from typing import Final

from vlm_api.plan import ExpectedHardware
from vlm_api.report import DetectedDevice, DetectedHardware

# The planned memory comes from a node's label, which uses other units and leaves out other parts.
MEMORY_TOLERANCE: Final = 0.03


def find_mismatches(expected: ExpectedHardware, detected: DetectedHardware) -> list[str]:
    """What is less than planned, one sentence each; empty if the plan holds or nothing is known.

    More than planned is fine, and what the driver does not report does not count.
    """
    if expected.device != "cuda" or detected.driver is None:
        return []
    problems: list[str] = []
    if len(detected.devices) < expected.devices:
        why = f" ({detected.note})" if detected.note else ""
        problems.append(f"the plan needs {expected.devices} devices, the pod has {len(detected.devices)}{why}")
    for number, device in enumerate(detected.devices):
        name = f"device {number} ({device.name or 'unnamed'})"
        problems += [f"{name} {problem}" for problem in _device(expected, device)]
    return problems


def _device(expected: ExpectedHardware, device: DetectedDevice) -> list[str]:
    problems: list[str] = []
    if device.mig and not expected.mig:
        problems.append("is a MIG slice, but the plan needs a whole GPU")
    planned, actual = expected.compute_capability, device.compute_capability
    if planned is not None and actual is not None and _version(actual) < _version(planned):
        problems.append(f"has compute capability {actual}, but the plan needs {planned}")
    memory = expected.memory_mib
    if memory is not None and device.memory_mib is not None and device.memory_mib < memory * (1 - MEMORY_TOLERANCE):
        problems.append(f"has {device.memory_mib} MiB, but the plan needs {memory} MiB")
    return problems


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
