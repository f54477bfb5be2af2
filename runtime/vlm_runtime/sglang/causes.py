"""Causes of an engine's end that a line of its log names: sign, reason, and the cause with its remedy.

One table, as data. Signs are of SGLang 0.5.23, PyTorch 2.14, NCCL 2.30 and Triton, in their sources or in public reports.
They take time linear in a line's length: no unbounded repetition that may begin anywhere.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple


class Cause(NamedTuple):
    """A row: what the log says, the reason, and what the failure's message begins with (fields as in a VLMService)."""

    sign: re.Pattern[str]
    reason: str
    text: str


_ERROR: Final = r"^[\w.]*(?:Error|Exception): "
_FEWER: Final = "Lower workload.concurrency"

# Within a reason, the more exact row comes first. Reasons without a row have one sentence in vlm_api.reasons.
CAUSES: Final = (
    Cause(
        re.compile(
            r"\b(?:Decode|Prefill) out of memory\. Try to lower your batch size|^RuntimeError: Out of memory\. Try to"
        ),
        "OutOfDeviceMemory",
        f"The KV cache is full: requests need more tokens than it holds. {_FEWER} or engine.settings.max_running_requests, "
        "or use more GPUs (parallelism.tensor).",
    ),
    Cause(
        re.compile(r"\balloc_req_slots runs out of memory"),
        "OutOfDeviceMemory",
        f"The engine has no slot left for another request. {_FEWER} or engine.settings.max_running_requests.",
    ),
    Cause(
        re.compile(r"\bstate cache is too small to serve any requests"),
        "OutOfDeviceMemory",
        f"The memory is too small for the states of the model's hybrid layers. {_FEWER}, raise "
        "engine.settings.mem_fraction_static, or use more GPUs (parallelism.tensor).",
    ),
    Cause(
        re.compile(rf"{_ERROR}The memory capacity is unbalanced\."),
        "GpuOccupied",
        "Another process uses memory of one of this pod's GPUs. Find it with nvidia-smi on the node and end it, or select "
        "other nodes in template.spec.nodeSelector. If GPUs differ on purpose, set "
        'engine.settings.SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK: "0".',
    ),
    Cause(
        re.compile(rf"{_ERROR}SGLang only supports sm75 and above"),
        "GpuUnsupported",
        "SGLang does not support GPUs below compute capability 7.5. Select newer ones in hardware.products or "
        "hardware.computeCapability.",
    ),
    Cause(
        re.compile(r"\bfp8e4nv not supported in this architecture"),
        "GpuUnsupported",
        "This GPU cannot compute in fp8 as the model needs it. Serve a checkpoint in another format (model.uri), remove fp8 "
        "from engine.settings, or select GPUs of compute capability 8.9 or above in hardware.computeCapability.",
    ),
    Cause(
        re.compile(rf"{_ERROR}.{{0,200}}no kernel image is available|^ptxas fatal\s{{0,9}}: Value 'sm_\w"),
        "GpuUnsupported",
        "The engine's image has no code for this GPU. Set engine.image to one that supports it (a newer release, or one for "
        "another CUDA), or select other GPUs in hardware.products.",
    ),
    Cause(
        re.compile(r"\bNCCL WARN (?:Call to ibv_\w{1,40} failed|NET/IB ?: Got (?:completion|async))"),
        "GroupDisconnected",
        "RDMA between the group's nodes failed. Give container main in template the RDMA device and the capability IPC_LOCK, "
        "choose the device with NCCL_IB_HCA in engine.env, or set NCCL_IB_DISABLE to 1 there, which is slower.",
    ),
    Cause(
        re.compile(
            r"\b(?:no socket interface found|NET/Socket ?: no interface found|Unable to find address for)\b",
            re.IGNORECASE,
        ),
        "GroupDisconnected",
        "The pod has no network interface of the name that NCCL or Gloo looks for. Set NCCL_SOCKET_IFNAME and "
        "GLOO_SOCKET_IFNAME in engine.env to the pod network's interface (often eth0), or remove them.",
    ),
    Cause(
        re.compile(
            r"\bGloo connectFullMesh failed|\bis setting up NCCL communicator and retrieving ncclUniqueId"
            rf"|{_ERROR}.{{0,300}}remote process exited or there was a network error|^nccl(?:Remote|System)Error: "
            rf"|{_ERROR}NCCL error: unhandled system error|\bWatchdog caught collective operation timeout"
        ),
        "GroupDisconnected",
        "The group's pods lost or could not open their connection (NCCL or Gloo). If another pod of the group failed first, "
        "its reason counts. Otherwise set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME in engine.env to the pod network's "
        "interface (often eth0), and let NetworkPolicies allow all ports between these pods.",
    ),
    Cause(
        re.compile(r"\bwatchdog timeout \(self\.watchdog_timeout=[\d.]{1,12}(?:, self\.soft=False)?\)", re.IGNORECASE),
        "EngineHung",
        "A process of the engine made no progress, and SGLang's own watchdog ended it. Look at the node for GPU errors (Xid) "
        "and report it to SGLang; if a batch may take that long, raise engine.settings.watchdog_timeout.",
    ),
    Cause(
        re.compile(r"\bWatchdog caught collective operation timeout"),
        "EngineHung",
        "The GPUs of this pod waited for each other in vain. Look at the node for GPU and NVLink errors (Xid), or set "
        "engine.settings.disable_custom_all_reduce: true.",
    ),
    Cause(
        re.compile(r"^(?:ImportError|ModuleNotFoundError): "),
        "ConfigurationError",
        "A Python module is missing in the engine's image, or is of another version than the engine or the model needs. Set "
        "engine.image to one that has it.",
    ),
    Cause(
        re.compile(r"^Exception: Capture cuda graph failed: "),
        "ConfigurationError",
        "The engine could not capture its CUDA graphs. Lower engine.settings.mem_fraction_static if memory is short, or set "
        "engine.image to another release.",
    ),
    Cause(
        re.compile(r"^(?:RuntimeError|Exception): "),
        "ConfigurationError",
        "The engine ended with the error below. If it names a setting, change it in engine.settings or engine.args; otherwise "
        "check engine.image and model.uri.",
    ),
)


def find(reason: str, lines: Sequence[str]) -> tuple[str, str] | None:
    """The text of the first row of this reason whose sign is in the lines, and the last line with it; None if there is none."""
    for cause in CAUSES:
        if cause.reason == reason and (line := next(filter(cause.sign.search, reversed(lines)), None)):
            return cause.text, line
    return None
