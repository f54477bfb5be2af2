"""Why the engine ended: one reason from its exit status, its last lines and the kernel's memory events."""

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vlm_api.plan import ServingPlan
from vlm_api.reasons import FAILURES
from vlm_api.report import Failure
from vlm_runtime.sglang import causes, log_lines
from vlm_runtime.sglang.command import option

LONGEST_MESSAGE_BYTES: Final = 2000
_LONGEST_LINE: Final = 400
_SHOWN_LINES: Final = 3
_LEAST_LOG: Final = 40
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")
_ABOUT_THE_MODEL: Final = frozenset({"ModelNotFound", "ModelAccessDenied", "ModelUnreadable", "HubUnreachable"})


@dataclass(frozen=True)
class Exit:
    """How a process ended: with an exit code, or by a signal."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"


def failure(reason: str, detail: str, *, advice: str = "", log: str = "") -> Failure:
    """A failure: first what happened, then the next step, last the log; the detail and the log are cut to 2,000 bytes in all.

    ``advice``: instead of the documented sentence. Raises KeyError for a reason that vlm_api.reasons does not document.
    """
    advice = advice or FAILURES[reason]
    # Control characters make the JSON six times as long, beyond what kubelet keeps of it.
    detail, log = (_CONTROL.sub(" ", text).strip() for text in (detail, log))
    first = f"{_cut(detail, LONGEST_MESSAGE_BYTES - len(advice.encode()) - 1)} {advice}".strip()
    room = LONGEST_MESSAGE_BYTES - len(first.encode()) - 1
    return Failure(reason=reason, message=f"{first} {_cut(log, room)}".strip() if room > _LEAST_LOG else first)


def classify(
    exit_status: Exit,
    lines: Sequence[str],
    *,
    was_ready: bool,
    oom_kills: int,
    device: str,
    shared_memory_full: bool = False,
    model: str = "",
    nvml_note: str | None = None,
    in_group: bool = False,
) -> Failure:
    """The failure behind an exit that nobody requested.

    ``lines``: the last lines of the engine's log, redacted, oldest first. ``oom_kills``: OOM kills in this container since
    the start. ``device``: the plan's, ``cuda`` or ``cpu``. ``model``: a sentence about the model's files, which comes first
    if they could not be read. ``nvml_note``: why NVML could not be read, which comes first if CUDA finds no driver.
    ``in_group``: the pod is one of several that serve together.
    """
    lines = [line for line in map(log_lines.plain, lines) if not log_lines.SERVER_ARGUMENTS.search(line)]
    errors = [line for line in lines if log_lines.ERROR_LINE.search(line)]
    detail = ""
    ended = f"The engine ended {'while serving' if was_ready else 'during its start'} with {exit_status}."
    reason = _reason(
        exit_status,
        lines,
        was_ready=was_ready,
        oom_kills=oom_kills,
        device=device,
        shared_memory_full=shared_memory_full,
        in_group=in_group,
    )
    shown = last_lines(errors or lines)
    if reason == "DriverUnusable" and nvml_note:
        detail = f"{nvml_note[:1].upper()}{nvml_note[1:]}."
    # Damaged files of the hub were reachable; for a folder it helps to know which.
    if model and reason in _ABOUT_THE_MODEL and (reason != "ModelUnreadable" or model.startswith((".", "/"))):
        detail = model
        errors = [line for line in errors if not log_lines.MISLEADING.search(line)]
        shown = last_lines(errors)
    # An error of a setting says more than the one that follows from it.
    is_named = reason == "ConfigurationError" and any(map(log_lines.CONFIGURATION_ERROR.search, lines))
    advice, cause = (None if is_named else causes.find(reason, lines)) or ("", "")
    if cause:
        errors = [cause, *errors]
        shown = list(dict.fromkeys([*last_lines([cause]), *shown]))
    if shown:
        ended += f" Last {'errors' if errors else 'lines'}: {' | '.join(shown).rstrip('.')}."
    return failure(reason, detail, advice=advice, log=ended)


def fatal(line: str) -> Failure | None:
    """The failure behind a log line after which the engine neither serves nor ends.

    The line alone proves nothing, since clients can write into the log.
    """
    line = log_lines.plain(line)
    if log_lines.PORT_TAKEN.search(line):
        return failure("PortInUse", f"The engine cannot listen: {line.strip()[:_LONGEST_LINE]}.")
    return None


def _reason(
    exit_status: Exit,
    lines: Sequence[str],
    *,
    was_ready: bool,
    oom_kills: int,
    device: str,
    shared_memory_full: bool,
    in_group: bool,
) -> str:
    def has(sign: re.Pattern[str]) -> bool:
        return any(sign.search(line) for line in lines)

    def names(reason: str) -> bool:
        return causes.find(reason, lines) is not None

    if oom_kills > 0:
        return "OutOfHostMemory"
    bus_error = exit_status.signal == signal.SIGBUS or has(log_lines.BUS_ERROR)
    if has(log_lines.SHARED_MEMORY) or (shared_memory_full and (bus_error or has(log_lines.NO_SPACE))):
        return "SharedMemoryFull"
    if has(log_lines.NO_SPACE):
        return "DiskFull"
    if has(log_lines.HOST_MEMORY):
        return "OutOfHostMemory"
    if has(log_lines.DEVICE_MEMORY) or names("OutOfDeviceMemory"):
        return "OutOfHostMemory" if device == "cpu" else "OutOfDeviceMemory"
    if device == "cuda" and has(log_lines.DEVICE_FAILED):
        return "DeviceFailed"
    if named := next(filter(names, ("GpuOccupied", "GpuUnsupported")), None):
        return named
    if not was_ready and (has(log_lines.PORT_TAKEN) or has(log_lines.GROUP_PORT_TAKEN)):
        return "PortInUse"
    if exit_status.code == 2 and has(log_lines.BAD_ARGUMENT):
        return "BadArgument"
    if not was_ready and (missing := _missing_at_start(has, device=device, in_group=in_group)):
        return missing
    if in_group and names("GroupDisconnected"):
        return "GroupDisconnected"
    if names("EngineHung"):
        return "EngineHung"
    if not was_ready and (
        exit_status.code == 1
        or (has(log_lines.SCHEDULER_DIED) and (has(log_lines.CONFIGURATION_ERROR) or names("ConfigurationError")))
    ):
        return "ConfigurationError"
    if has(log_lines.SCHEDULER_DIED):
        return "SchedulerDied"
    return "EngineExited" if exit_status.signal is None or has(log_lines.KILLED_ITSELF) else "EngineKilled"


def _missing_at_start(has: Callable[[re.Pattern[str]], bool], *, device: str, in_group: bool) -> str | None:
    """What was missing. The driver comes first, without which nothing works; other pods last, which wait in vain."""
    if device == "cuda" and has(log_lines.DRIVER_UNUSABLE):
        return "DriverUnusable"
    if has(log_lines.WARM_UP_FAILED):
        return None
    signs = {
        "PermissionDenied": log_lines.PERMISSION_DENIED,
        "ModelAccessDenied": log_lines.ACCESS_DENIED,
        "HubUnreachable": log_lines.HUB_UNREACHABLE,
        "ModelUnreadable": log_lines.DAMAGED_FILE,
        "ModelNotFound": log_lines.MODEL_NOT_FOUND,
    }
    reason = next((reason for reason, sign in signs.items() if has(sign)), None)
    return reason or ("GroupIncomplete" if in_group and has(log_lines.GROUP_INCOMPLETE) else None)


def describe_model(plan: ServingPlan) -> str:
    """One sentence about the model's files that begins with their path or name; empty if the plan names none.

    The engine's libraries take a folder that does not exist for a name on the hub.
    """
    model = option(plan.engine.args, "--model-path") or option(plan.engine.args, "--model")
    if not model:
        return ""
    if not model.startswith(("/", "./", "../")):
        revision = option(plan.engine.args, "--revision")
        return f"{model}{f' (revision {revision})' if revision else ''} could not be downloaded from the hub."
    return f"{model} {_state_of(Path(model))}."


def _state_of(folder: Path) -> str:
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return "does not exist in the pod"
    except NotADirectoryError:
        return "is not a folder"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not names:
        return "is an empty folder"
    if "config.json" not in names:
        return "has no config.json"
    return "exists, but is incomplete or cannot be read"


def last_lines(lines: Sequence[str]) -> list[str]:
    """The last few lines, oldest first, each once and shortened."""
    unique = list(dict.fromkeys(line.strip()[:_LONGEST_LINE] for line in reversed(lines) if line.strip()))
    return unique[:_SHOWN_LINES][::-1]


def _cut(text: str, room_bytes: int) -> str:
    data = text.encode()
    if len(data) <= room_bytes:
        return text
    return data[: room_bytes - 3].decode("utf-8", "ignore") + "…"
