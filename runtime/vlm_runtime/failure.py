"""Why the engine ended: from its exit status, its last lines and the kernel's memory events to one reason."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vlm_api.reasons import FAILURES
from vlm_api.report import Failure

LONGEST_MESSAGE_BYTES: Final = 2000
_LONGEST_LINE: Final = 400
# Beyond it stands what clients sent; some of the expressions below take the square of a line's length.
_READ_CHARACTERS: Final = 2000
_SHOWN_LINES: Final = 3

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")

# Texts of SGLang 0.5.23, PyTorch, transformers and huggingface_hub, as they were seen or stand in their sources.
_DEVICE_MEMORY: Final = re.compile(
    r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|Cuda failure.*out of memory"
    r"|Not enough memory\. Please try to increase --mem-fraction-static|leave no GPU memory for the KV cache"
)
_HOST_MEMORY: Final = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|^MemoryError|Cannot allocate memory"
)
_NO_SPACE: Final = re.compile(r"^\w[\w.]*Error\b.*No space left on device")
_SHARED_MEMORY: Final = re.compile(
    r"unable to (?:allocate|resize|mmap|write to) .*</?torch_|insufficient shared memory"
    r"|creating shared memory segment /dev/shm/nccl|^\w[\w.]*Error\b.*No space left on device.*/dev/shm"
)
# Memory that a full /dev/shm promised and does not have: the kernel ends who writes to it.
_BUS_ERROR: Final = re.compile(r"crashed with exit code -7\b|exitcode=-7\b|\bSIGBUS\b|^Bus error")
# To whom may not see a repository, the hub says that there is none.
_DENIED: Final = re.compile(
    r"GatedRepoError|trying to access a gated repo|\b40[13] Client Error|Client error '40[13]\b|HfHubHTTPError: 40[13]\b"
)
# Of huggingface_hub 0.36, which asks by requests, and 1.33, by httpx; large files come by xet, which has words of its own.
# The engine asks itself by requests, too, while it warms up.
_NO_HUB: Final = re.compile(
    r"We couldn't connect to '|LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled"
    r"|^(?!.*host='(?:127\.0\.0\.1|localhost|::1)')(?:httpx|httpcore|requests\.exceptions|urllib3\.exceptions)\S*\."
    r"(?:Connect\w*|(?:Read|Write|Pool)Timeout|(?:Read|Write)Error|RemoteProtocolError|ProxyError|SSLError"
    r"|ChunkedEncodingError|ProtocolError|IncompleteRead|MaxRetryError|NameResolutionError)\b"
    r"|^(?:huggingface_hub|requests\.exceptions)\S*HTTPError: (?:Server error '|Client error ')?(?:408|425|429|5\d\d)\b"
    r"|^RuntimeError: .*\bCAS (?:[Ss]ervice|Client) [Ee]rror|^OSError: Consistency check failed"
    r"|^OSError: There was a specific connection error"
)
# safetensors, PyTorch's pickles, and transformers of config.json.
_DAMAGED: Final = re.compile(
    r"SafetensorError: |UnpicklingError: invalid load key|^OSError: It looks like the config file at .* is not a valid JSON"
)
_PERMISSION: Final = re.compile(
    r"^PermissionError: \[Errno 13\]|^OSError: (?:PermissionError at /|\[Errno 30\] Read-only file system)"
)
# PyTorch of CUDA, as a warning or an error, and SGLang where PyTorch says that there is none.
_DRIVER: Final = re.compile(
    r"CUDA initialization: |Unexpected error from cudaGetDeviceCount|No CUDA GPUs are available|Found no NVIDIA driver"
    r"|NVIDIA driver on your system is too old|CUDA driver version is insufficient|no CUDA-capable device is detected"
    r"|CUDA error: (?:system not yet initialized|system has unsupported display driver|forward compatibility was attempted)"
    r"|libcuda\.so\.1: cannot open shared object file|No accelerator \(CUDA|^RuntimeError: nvidia-smi (?:not found|error|failed)"
)
# CUDA's own words, as PyTorch and NCCL tell them. Faults that a kernel may cause as well are not among them.
_DEVICE: Final = re.compile(
    r"(?:CUDA error: |Cuda failure\b.{0,40})(?:uncorrectable (?:ECC|NVLink) error|hardware stack error"
    r"|CUDA-capable device\(s\) is/are busy or unavailable|Invalid access of peer GPU memory over nvlink or a hardware error)"
)
# PyTorch, where members of a group find together, and SGLang, where they wait for each other's weights.
_GROUP: Final = re.compile(
    r"Dist(?:Store|Network)Error: |there are other ranks that didn't finish loading|Failed to receive worker ports from node 0"
)
_MODEL: Final = re.compile(
    r"RepositoryNotFoundError|RevisionNotFoundError|EntryNotFoundError|HFValidationError"
    r"|Repo id must be in the form|is not a local folder and is not a valid model identifier"
    r"|does not appear to have a file named|couldn't find them in the cached files|Cannot find any model weights"
    r"|Unrecognized model in .* Should have a `model_type` key"
    r"|No such file or directory: .*(?:config\.json|tokenizer|safetensors)"
)
# What the hub's library says of a folder that is not there: it takes the path for a name.
_MISLEADING: Final = re.compile(r"HFValidationError|Repo id must be in the form|valid model identifier")
_OF_THE_MODEL: Final = frozenset({"ModelNotFound", "ModelAccessDenied", "ModelUnreadable", "HubUnreachable"})
_ARGUMENT: Final = re.compile(r"^\S.*: error: ")
_SCHEDULER: Final = re.compile(
    r"Scheduler hit an exception|Subprocess scheduler\S* .*crashed|Rank \d+ scheduler (?:is dead|died)"
    r"|Received sigquit from a child process|SIGQUIT received"
)
# SGLang 0.5.16 to 0.5.23 before it ends itself by SIGKILL, as where its warm-up fails.
_BY_ITSELF: Final = re.compile(r"kill_process_tree called: parent_pid=(\d+), include_parent=True, pid=\1\b")
# SGLang before it ends itself, where its own question to itself failed: it has everything of the model's by then.
_WARM_UP: Final = re.compile(r"\bInitialization failed\. warmup error: ")
# PyTorch's, where the head of a group opens its rendezvous: others would wait for it in vain.
_GROUP_PORT: Final = re.compile(r"The server socket has failed to listen on any local network address")
# Uvicorn's, followed by its own end; SGLang's other processes run on, and the container with them.
_PORT: Final = re.compile(r"error while attempting to bind on address .*(?:address already in use|permission denied)")
_CONFIGURATION: Final = re.compile(r"^(?:ValueError|AssertionError|NotImplementedError|KeyError|TypeError|OSError)\b")
_ERROR_LINE: Final = re.compile(r"^\w[\w.]*(?:Error|Exception)\b|: error: |crashed with exit code|\bERROR\b")


@dataclass(frozen=True)
class Exit:
    """How a process ended: an exit code, or the number of the signal that ended it."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"


def failure(reason: str, detail: str) -> Failure:
    """A failure with what happened first and the documented next step last, cut to 2,000 bytes.

    Raises KeyError for a reason that is not documented in vlm_api.reasons.
    """
    advice = FAILURES[reason]
    room = LONGEST_MESSAGE_BYTES - len(advice.encode()) - 1
    # Control characters would make the JSON six times as long, beyond what kubelet keeps of it.
    detail = _CONTROL.sub(" ", detail).strip()
    return Failure(reason=reason, message=f"{_cut(detail, room)} {advice}" if detail else advice)


def classify(
    ended: Exit,
    lines: Sequence[str],
    *,
    was_ready: bool,
    oom_kills: int,
    device: str,
    shared_memory_full: bool = False,
    model: str = "",
    nvml: str | None = None,
    in_group: bool = False,
) -> Failure:
    """One reason for an exit that nobody asked for.

    ``lines``: the last lines of the engine's log, redacted, oldest first. ``oom_kills``: processes in this container
    that the kernel killed for memory since the start. ``device``: the plan's, ``cuda`` or ``cpu``. ``model``: a sentence
    about where the model should be, which comes first where it could not be read. ``nvml``: what NVML said where it could
    not be asked, which comes first where CUDA finds no driver. ``in_group``: the pod is one of several that serve together.
    """
    lines = [_COLOUR.sub("", line[:_READ_CHARACTERS]) for line in lines]
    when = "while serving" if was_ready else "during its start"
    errors = [line for line in lines if _ERROR_LINE.search(line)]
    shown = last_lines(errors or lines)
    detail = f"The engine ended {when} with {ended}."
    reason = _reason(
        ended,
        lines,
        was_ready=was_ready,
        oom_kills=oom_kills,
        device=device,
        shared_memory_full=shared_memory_full,
        in_group=in_group,
    )
    if reason == "DriverUnusable" and nvml:
        detail = f"{nvml[:1].upper()}{nvml[1:]}. {detail}"
    # Damaged files of the hub's could be had; of a folder it helps to know which.
    if model and reason in _OF_THE_MODEL and (reason != "ModelUnreadable" or model.startswith((".", "/"))):
        detail = f"{model} {detail}"
        errors = [line for line in errors if not _MISLEADING.search(line)]
        shown = last_lines(errors)
    if shown:
        detail += f" Last {'errors' if errors else 'lines'}: {' | '.join(shown).rstrip('.')}."
    return failure(reason, detail)


def fatal(line: str) -> Failure | None:
    """The failure that a line of the engine's log tells where the engine neither serves nor ends after it.

    A line alone proves nothing: requests find their way into the log.
    """
    line = _COLOUR.sub("", line[:_READ_CHARACTERS])
    if _PORT.search(line):
        return failure("PortInUse", f"The engine cannot listen: {line.strip()[:_LONGEST_LINE]}.")
    return None


def _reason(
    ended: Exit,
    lines: Sequence[str],
    *,
    was_ready: bool,
    oom_kills: int,
    device: str,
    shared_memory_full: bool,
    in_group: bool,
) -> str:
    def said(sign: re.Pattern[str]) -> bool:
        return any(sign.search(line) for line in lines)

    if oom_kills > 0:
        return "OutOfHostMemory"
    bus_error = ended.signal == signal.SIGBUS or said(_BUS_ERROR)
    if said(_SHARED_MEMORY) or (shared_memory_full and (bus_error or said(_NO_SPACE))):
        return "SharedMemoryFull"
    if said(_NO_SPACE):
        return "DiskFull"
    if said(_HOST_MEMORY):
        return "OutOfHostMemory"
    if said(_DEVICE_MEMORY):
        return "OutOfHostMemory" if device == "cpu" else "OutOfDeviceMemory"
    if device == "cuda" and said(_DEVICE):
        return "DeviceFailed"
    if not was_ready and (said(_PORT) or said(_GROUP_PORT)):
        return "PortInUse"
    if ended.code == 2 and said(_ARGUMENT):
        return "BadArgument"
    if not was_ready and (missing := _missing(said, device=device, in_group=in_group)):
        return missing
    if not was_ready and (ended.code == 1 or (said(_SCHEDULER) and said(_CONFIGURATION))):
        return "ConfigurationError"
    if said(_SCHEDULER):
        return "SchedulerDied"
    return "EngineExited" if ended.signal is None or said(_BY_ITSELF) else "EngineKilled"


def _missing(said: Callable[[re.Pattern[str]], bool], *, device: str, in_group: bool) -> str | None:
    """What a start did not find. A driver first, without which nothing else counts; other pods last, which wait in vain."""
    if device == "cuda" and said(_DRIVER):
        return "DriverUnusable"
    if said(_WARM_UP):
        return None
    signs = {
        "PermissionDenied": _PERMISSION,
        "ModelAccessDenied": _DENIED,
        "HubUnreachable": _NO_HUB,
        "ModelUnreadable": _DAMAGED,
        "ModelNotFound": _MODEL,
    }
    found = next((reason for reason, sign in signs.items() if said(sign)), None)
    return found or ("GroupIncomplete" if in_group and said(_GROUP) else None)


def last_lines(lines: Sequence[str]) -> list[str]:
    """The last few lines, oldest first, each once and shortened."""
    unique = list(dict.fromkeys(line.strip()[:_LONGEST_LINE] for line in reversed(lines) if line.strip()))
    return unique[:_SHOWN_LINES][::-1]


def _cut(text: str, room_bytes: int) -> str:
    data = text.encode()
    if len(data) <= room_bytes:
        return text
    return data[: room_bytes - 3].decode("utf-8", "ignore") + "…"
