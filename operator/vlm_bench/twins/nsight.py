"""Nsight Systems: it records only processes that it has started, so a twin of the service runs under it.

Commands and report are those of Nsight Systems 2023.1 and later (its user guide, "CLI Command Options" and "Report
Scripts"); earlier ones call the report ``gpukernsum``, and their recordings are kept without a summary.
"""

import csv
import io
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from vlm_api.names import MAIN_CONTAINER, RUNTIME_MOUNT
from vlm_bench.traces.kernels import kernel_work, short
from vlm_bench.traces.stages import Kernel
from vlm_operator.errors import InvalidInput
from vlm_operator.manifests.names import Manifest

SESSION: Final = "vlm"
GRACE_SECONDS: Final = 20
# The runtime with the rest of its command line; nothing is recorded until `nsys start`. All of it is the command, since a
# container's args are the engine's.
LAUNCH: Final = (
    "python3", f"{RUNTIME_MOUNT}/start.py",
    "--engine-command", "nsys", "launch", f"--session-new={SESSION}", "--trace=cuda,nvtx", "--wait=primary",
    "python3", "-m", "sglang.launch_server",
)  # fmt: skip


def under_nsight(twin: Mapping[str, Any]) -> Manifest:
    """The same VLMService with its engine started by ``nsys launch``. Raises InvalidInput if its template sets a command or args
    of the engine's container."""
    result: Manifest = deepcopy(dict(twin))
    pod = result["spec"].setdefault("template", {}).setdefault("spec", {})
    containers = pod.setdefault("containers", [])
    main = next((c for c in containers if c.get("name") == MAIN_CONTAINER), None)
    if main is None:
        containers.append(main := {"name": MAIN_CONTAINER})
    if main.get("args") or main.get("command"):
        raise InvalidInput(
            "--nsight",
            f"spec.template sets a command or args of container {MAIN_CONTAINER}: remove them, and put the engine's arguments "
            "into spec.engine.args",
        )
    main["command"] = list(LAUNCH)
    # No client waits for its answers, and nsys may not pass on the signal to end.
    pod["terminationGracePeriodSeconds"] = GRACE_SECONDS
    return result


def kernel_sums(text: str) -> list[Kernel]:
    """The rows of the report ``cuda_gpu_kern_sum`` as CSV, longest total time first."""
    lines = text.splitlines()
    header = next((number for number, line in enumerate(lines) if "Total Time (ns)" in line and "Name" in line), None)
    if header is None:
        return []
    sums = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[header:]))):
        try:
            total_us, count = float(row["Total Time (ns)"]) / 1000, int(row["Instances"])
        except (KeyError, TypeError, ValueError):
            continue  # an empty line, or a notice after the table
        name = row["Name"] or "unnamed kernel"
        sums.append(Kernel(short(name), kernel_work(name), (), count, total_us))
    return sorted(sums, key=lambda kernel: -kernel.total_us)
