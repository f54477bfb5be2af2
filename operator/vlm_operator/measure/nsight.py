"""Nsight Systems: it records only what it has started, so a twin of the service is started below it.

Commands and report are those of Nsight Systems 2023.1 and later (its user guide, "CLI Command Options" and "Report
Scripts"); earlier ones call the report ``gpukernsum``, and their recordings are kept without a summary.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from vlm_api.names import MAIN_CONTAINER, RUNTIME_MOUNT
from vlm_operator.errors import InvalidInput
from vlm_operator.measure.kernels import Work, kernel_work, short
from vlm_operator.render.names import Manifest

SESSION: Final = "vlm"
GRACE_SECONDS: Final = 20
# The runtime with the rest of its command line; nothing is recorded until `nsys start`. All of it is the command, since
# a container's args are read as the engine's.
LAUNCH: Final = (
    "python3", f"{RUNTIME_MOUNT}/start.py",
    "--engine-command", "nsys", "launch", f"--session-new={SESSION}", "--trace=cuda,nvtx", "--wait=primary",
    "python3", "-m", "sglang.launch_server",
)  # fmt: skip


@dataclass(frozen=True)
class KernelSum:
    """All runs of one kernel in the recording, on all GPUs of the pod."""

    name: str
    work: Work
    count: int
    total_us: float

    def to_json(self) -> dict[str, Any]:
        """For files."""
        return {"name": self.name, "work": self.work.value, "count": self.count, "microseconds": self.total_us}


def below_nsight(twin: Mapping[str, Any]) -> Manifest:
    """The same VLMService with its engine started by ``nsys launch``. Raises InvalidInput where its template gives the
    engine's container a command or args of its own."""
    found: Manifest = deepcopy(dict(twin))
    containers = found["spec"].setdefault("template", {}).setdefault("spec", {}).setdefault("containers", [])
    main = next((c for c in containers if c.get("name") == MAIN_CONTAINER), None)
    if main is None:
        containers.append(main := {"name": MAIN_CONTAINER})
    if main.get("args") or main.get("command"):
        raise InvalidInput(
            "--nsight",
            f"spec.template gives container {MAIN_CONTAINER} a command or args of its own: leave them out, and write the "
            "engine's arguments into spec.engine.args",
        )
    main["command"] = list(LAUNCH)
    # Nobody waits for its answers, and nsys may keep to itself that it was asked to end.
    found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    return found


def kernel_sums(text: str) -> list[KernelSum]:
    """The rows of the report ``cuda_gpu_kern_sum`` as CSV, those that took longest first; none where it holds none."""
    lines = text.splitlines()
    header = next((number for number, line in enumerate(lines) if "Total Time (ns)" in line and "Name" in line), None)
    if header is None:
        return []
    found = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[header:]))):
        try:
            total_us, count = float(row["Total Time (ns)"]) / 1000, int(row["Instances"])
        except (KeyError, TypeError, ValueError):
            continue  # an empty line, or a notice below the table
        name = row["Name"] or "a kernel without a name"
        found.append(KernelSum(short(name), kernel_work(name), count, total_us))
    return sorted(found, key=lambda kernel: -kernel.total_us)


def by_work(kernels: Sequence[KernelSum]) -> dict[Work, float]:
    """Kind of work -> microseconds."""
    found = dict.fromkeys(Work, 0.0)
    for kernel in kernels:
        found[kernel.work] += kernel.total_us
    return {work: time for work, time in found.items() if time}
