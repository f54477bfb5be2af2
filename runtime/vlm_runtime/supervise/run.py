"""From the plan to a supervised engine: read the plan, serve the report, check the GPUs, clear leftovers, start."""

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue

from pydantic import ValidationError

import vlm_runtime
from vlm_api.plan import ServingPlan
from vlm_api.report import DetectedHardware, Failure
from vlm_runtime.hardware import nvml
from vlm_runtime.hardware.mismatch import find_mismatches
from vlm_runtime.probe.stall import stall_limits
from vlm_runtime.probe.watcher import Pace, Watcher
from vlm_runtime.report import server
from vlm_runtime.report.log import Log
from vlm_runtime.report.state import RuntimeState
from vlm_runtime.sglang import leftovers
from vlm_runtime.sglang.client import EngineClient
from vlm_runtime.sglang.command import LOOPBACK_IPV6, BadApiKey, BadEnvironment, BadToken, EngineCommand, engine_command
from vlm_runtime.sglang.failure import failure, fatal
from vlm_runtime.sglang.feature_pool import FeaturePoolMonitor
from vlm_runtime.sglang.log_lines import phase_of
from vlm_runtime.supervise.engine import EngineProcess, adopt_orphans
from vlm_runtime.supervise.leader import Leader
from vlm_runtime.supervise.pod import is_ipv6_only, oom_kills
from vlm_runtime.supervise.supervisor import ChildExited, EngineFailed, Event, StopRequested, Supervisor


@dataclass(frozen=True)
class Options:
    """The command line. In a pod, every option has its default."""

    plan: Path
    port: int
    engine_port: int | None
    engine_command: Sequence[str]
    termination_log: Path
    endpoint_delay_seconds: float
    hang_seconds: float | None


class _StopBeforeStart(Exception):
    """The container was stopped before it had an engine."""


def run(options: Options, events: SimpleQueue[Event], log: Log) -> Failure | None:
    """Returns when the engine has ended: None after a requested stop, else the failure."""
    try:
        plan = ServingPlan.model_validate_json(options.plan.read_bytes())
        command = _engine_command(plan, options)
        log.set_engine_address(command.address)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        first = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in problems[:3])
        return failure("BadPlan", f"{options.plan} is not a ServingPlan: {first}.")
    except BadApiKey as error:
        return failure("BadApiKey", f"{error}.")
    except BadToken as error:
        return failure("BadToken", f"{error}.")
    except (OSError, BadEnvironment) as error:
        return failure("BadPlan", f"{error}.")

    if command.address == LOOPBACK_IPV6:
        log.write("the engine listens on IPv6 only, because the pod has no IPv4 address or the plan says so")
    state = RuntimeState(plan.hash, plan.runtime.startup_budget_seconds)
    try:
        server.serve(state, options.port)
    except OSError as error:
        return failure("PortInUse", f"The runtime cannot listen on port {options.port}: {error}.")

    try:
        mismatch = _check_hardware(plan, state, events, log)
    except _StopBeforeStart as stop:
        log.write(str(stop))
        return None
    if mismatch is not None:
        return mismatch
    files, size = leftovers.clear_shared_memory()
    if files:
        log.write(f"removed {files} files of {size >> 20} MiB that an earlier engine left in /dev/shm")
    # In the background: a network file system may be slow, and the start does not depend on it.
    threading.Thread(target=_clear_downloads, args=(command, log), name="downloads", daemon=True).start()
    return _supervise(plan, command, options, state, events, log)


def _engine_command(plan: ServingPlan, options: Options) -> EngineCommand:
    return engine_command(
        plan,
        os.environ,
        options.engine_command,
        library=str(Path(vlm_runtime.__file__).resolve().parent.parent),
        port=options.engine_port,
        ipv6_only=is_ipv6_only(),
    )


def _check_hardware(plan: ServingPlan, state: RuntimeState, events: SimpleQueue[Event], log: Log) -> Failure | None:
    """The failure if the pod has less hardware than planned. Raises _StopBeforeStart."""
    if plan.runtime.hardware.device != "cuda":
        return None
    # In a thread: a broken driver may never answer, and a signal would have to wait for it.
    answer: list[DetectedHardware] = []

    def detect() -> None:
        try:
            answer.append(nvml.detect_hardware(nvml.load()))
        except Exception as error:  # whatever a driver or pynvml raises must not end the runtime
            answer.append(DetectedHardware(note=f"NVML failed: {error!r}"))
        events.put(ChildExited())

    threading.Thread(target=detect, name="hardware", daemon=True).start()
    while not answer:
        state.heartbeat()
        try:
            event = events.get(timeout=1.0)
        except Empty:
            event = None
        if isinstance(event, StopRequested):
            raise _StopBeforeStart(f"{signal.Signals(event.signal).name} before there was an engine: ending now")
        if not answer and state.remaining_seconds <= 0:
            return failure(
                "StartupTimeout",
                f"Not ready after {state.budget_seconds} s, in phase {state.phase.value}: the driver does not answer.",
            )
    detected = answer[0]
    state.set_hardware(detected)
    if detected.note is not None:
        log.write(detected.note)
    mismatches = find_mismatches(plan.runtime.hardware, detected)
    return failure("HardwareMismatch", "; ".join(mismatches) + ".") if mismatches else None


def _clear_downloads(command: EngineCommand, log: Log) -> None:
    try:
        files, size = leftovers.clear_downloads(leftovers.download_caches(command.env, command.argv))
    except OSError as error:
        log.write(f"cannot look for unfinished downloads in the cache: {error}")
        return
    if files:
        log.write(f"removed {files} files of {size >> 20} MiB of unfinished downloads")


def _supervise(
    plan: ServingPlan,
    command: EngineCommand,
    options: Options,
    state: RuntimeState,
    events: SimpleQueue[Event],
    log: Log,
) -> Failure | None:
    pool = FeaturePoolMonitor(plan)

    def on_line(line: str) -> None:
        if pool.read_line(line):
            state.set_feature_pool(pool.state)
        phase = None if state.was_ready else phase_of(line)
        if phase is not None and state.advance(phase):
            log.write(f"{phase.value} after {state.elapsed_seconds:.0f} s")
        problem = fatal(line)
        if problem is not None and not engine.has_listened():
            events.put(EngineFailed(problem))

    engine = EngineProcess(command, log, on_line)
    client = EngineClient(command, plan.engine.version)
    adopt_orphans()
    limits = stall_limits(plan)
    if options.hang_seconds is not None:
        limits = replace(limits, idle=options.hang_seconds)
    watcher = Watcher(
        plan,
        client,
        state,
        is_leader=command.is_leader,
        log=log.write,
        on_failure=lambda problem: events.put(EngineFailed(problem)),
        pool=pool,
        redact=log.redact,
        pace=Pace(stall_limits=limits),
    )
    leader = None if command.is_leader else Leader(command.leader, options.port, is_formed=lambda: state.was_ready)
    supervisor = Supervisor(
        plan,
        engine,
        state,
        log,
        events,
        endpoint_delay_seconds=options.endpoint_delay_seconds,
        oom_kills=oom_kills,
        heal=client.heal,
        wait_for_leader=None if leader is None else leader.wait_until_gone,
    )
    return supervisor.run(watcher.run)
