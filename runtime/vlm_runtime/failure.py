"""Why the engine ended: from its exit status, its last lines and the kernel's memory events to one reason."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vlm_api.reasons import FAILURES
from vlm_api.report import Failure

LONGEST_MESSAGE_BYTES: Final = 2000
_LONGEST_LINE: Final = 400
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
_MODEL: Final = re.compile(
    r"RepositoryNotFoundError|RevisionNotFoundError|GatedRepoError|EntryNotFoundError|HFValidationError"
    r"|Repo id must be in the form|is not a local folder and is not a valid model identifier"
    r"|does not appear to have a file named|couldn't find them in the cached files|Cannot find any model weights"
    r"|No such file or directory: .*(?:config\.json|tokenizer|safetensors)"
)
_ARGUMENT: Final = re.compile(r"^\S.*: error: ")
_SCHEDULER: Final = re.compile(
    r"Scheduler hit an exception|Subprocess scheduler\S* .*crashed|Rank \d+ scheduler (?:is dead|died)"
    r"|Received sigquit from a child process|SIGQUIT received"
)
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


def classify(ended: Exit, lines: Sequence[str], *, was_ready: bool, oom_kills: int, device: str) -> Failure:
    """One reason for an exit that nobody asked for.

    ``lines``: the last lines of the engine's log, redacted, oldest first. ``oom_kills``: processes in this container
    that the kernel killed for memory since the start. ``device``: the plan's, ``cuda`` or ``cpu``.
    """
    lines = [_COLOUR.sub("", line) for line in lines]
    when = "while serving" if was_ready else "during its start"
    errors = [line for line in lines if _ERROR_LINE.search(line)]
    shown = last_lines(errors or lines)
    detail = f"The engine ended {when} with {ended}."
    if shown:
        detail += f" Last {'errors' if errors else 'lines'}: {' | '.join(shown).rstrip('.')}."
    return failure(_reason(ended, lines, was_ready=was_ready, oom_kills=oom_kills, device=device), detail)


def fatal(line: str) -> Failure | None:
    """The failure that a line of the engine's log tells where the engine neither serves nor ends after it."""
    line = _COLOUR.sub("", line)
    if _PORT.search(line):
        return failure("PortInUse", f"The engine cannot listen: {line.strip()[:_LONGEST_LINE]}.")
    return None


def _reason(ended: Exit, lines: Sequence[str], *, was_ready: bool, oom_kills: int, device: str) -> str:
    def said(sign: re.Pattern[str]) -> bool:
        return any(sign.search(line) for line in lines)

    if oom_kills > 0 or said(_HOST_MEMORY):
        return "OutOfHostMemory"
    if said(_DEVICE_MEMORY):
        return "OutOfHostMemory" if device == "cpu" else "OutOfDeviceMemory"
    if said(_PORT):
        return "PortInUse"
    if ended.code == 2 and said(_ARGUMENT):
        return "BadArgument"
    if not was_ready and said(_MODEL):
        return "ModelNotFound"
    if not was_ready and (ended.code == 1 or (said(_SCHEDULER) and said(_CONFIGURATION))):
        return "ConfigurationError"
    if said(_SCHEDULER):
        return "SchedulerDied"
    return "EngineExited" if ended.signal is None else "EngineKilled"


def last_lines(lines: Sequence[str]) -> list[str]:
    """The last few lines, oldest first, each once and shortened."""
    unique = list(dict.fromkeys(line.strip()[:_LONGEST_LINE] for line in reversed(lines) if line.strip()))
    return unique[:_SHOWN_LINES][::-1]


def _cut(text: str, room_bytes: int) -> str:
    data = text.encode()
    if len(data) <= room_bytes:
        return text
    return data[: room_bytes - 3].decode("utf-8", "ignore") + "…"
