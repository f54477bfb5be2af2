"""The container's first process: ``python3 start.py`` beside the engine, or ``python3 -m vlm_runtime``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue

from pydantic import ValidationError

from vlm_api.names import PLAN_KEY, PLAN_MOUNT, RUNTIME_PORT, TERMINATION_LOG
from vlm_api.plan import ServingPlan
from vlm_api.report import Failure, FoundHardware
from vlm_runtime import downloads, nvml, server, shared_memory
from vlm_runtime.addresses import LOOPBACK_IPV6, is_ipv6_only
from vlm_runtime.cgroup import oom_kills
from vlm_runtime.client import EngineClient
from vlm_runtime.command import BadApiKey, BadEnvironment, EngineCommand, engine_command
from vlm_runtime.engine_process import EngineProcess, adopt_orphans
from vlm_runtime.failure import failure, fatal
from vlm_runtime.feature_pool import PoolWatch
from vlm_runtime.hang import Patience, patience
from vlm_runtime.hardware import shortcomings
from vlm_runtime.head import Head
from vlm_runtime.log_pipe import LogPipe, occupy_standard_streams
from vlm_runtime.output import Output
from vlm_runtime.phases import phase_of
from vlm_runtime.redact import Redactor, secrets_in
from vlm_runtime.state import RuntimeState
from vlm_runtime.supervisor import Asked, Child, Event, Lost, Supervisor
from vlm_runtime.watcher import Pace, Watcher


@dataclass(frozen=True)
class Options:
    """The command line. In a pod all of it has its default."""

    plan: Path
    port: int
    engine_port: int | None
    engine_command: Sequence[str]
    termination_log: Path
    endpoint_delay_seconds: float
    hang_seconds: float | None


def options(argv: Sequence[str] | None = None) -> Options:
    """Reads the command line; ends the process with code 2 where it is wrong."""
    parser = argparse.ArgumentParser(
        "vlm_runtime", description="Runs and watches one pod's engine.", allow_abbrev=False
    )
    parser.add_argument("--plan", type=Path, default=Path(PLAN_MOUNT) / PLAN_KEY, help="the ServingPlan")
    parser.add_argument("--port", type=int, default=RUNTIME_PORT, help="probes, metrics and report")
    parser.add_argument("--engine-port", type=int, help="instead of the port in the plan")
    parser.add_argument(
        "--engine-command",
        nargs=argparse.REMAINDER,
        default=[sys.executable, "-m", "sglang.launch_server"],
        help="the rest of the line: what is started with the plan's arguments",
    )
    parser.add_argument(
        "--termination-log", type=Path, default=Path(TERMINATION_LOG), help="where a failure is explained"
    )
    parser.add_argument(
        "--endpoint-delay-seconds",
        type=float,
        default=5.0,
        help="how long to serve on after SIGTERM, until no new requests come",
    )
    parser.add_argument(
        "--hang-seconds",
        type=float,
        help="how long the engine may stand still, instead of what follows from the plan: at least 120 s",
    )
    return Options(**vars(parser.parse_args(argv)))


def main(argv: Sequence[str] | None = None) -> int:
    """The container's life: exit code 0 where it was asked to end, 1 with a termination message everywhere else."""
    occupy_standard_streams()
    events: SimpleQueue[Event] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: events.put(Asked(n)))
    signal.signal(signal.SIGCHLD, lambda *_: events.put(Child()))

    chosen = options(argv)
    output = Output(LogPipe(1), Redactor(secrets_in(os.environ)))
    lost = _run(chosen, events, output)
    if lost is None:
        return 0
    _explain(lost, chosen.termination_log, output)
    return 1


def _run(chosen: Options, events: SimpleQueue[Event], output: Output) -> Failure | None:
    try:
        plan = ServingPlan.model_validate_json(chosen.plan.read_bytes())
        command = _command(plan, chosen)
        output.asks_at(command.address)
    except ValidationError as error:
        return failure("BadPlan", f"{chosen.plan} is no ServingPlan: {_first_problems(error)}.")
    except BadApiKey as error:
        return failure("BadApiKey", f"{error}.")
    except (OSError, BadEnvironment) as error:
        return failure("BadPlan", f"{error}.")

    if command.address == LOOPBACK_IPV6:
        output.say("the engine listens on IPv6 addresses alone, as on a pod without an IPv4 address")
    state = RuntimeState(plan.hash, plan.runtime.startup_budget_seconds)
    try:
        server.serve(state, chosen.port)
    except OSError as error:
        return failure("PortInUse", f"The runtime cannot listen on port {chosen.port}: {error}.")

    try:
        mismatch = _check_hardware(plan, state, events, output)
    except _AskedToEnd as asked:
        output.say(str(asked))
        return None
    if mismatch is not None:
        return mismatch
    _clear_shared_memory(output)
    # Beside the start: a network file system may take its time, and what is removed is what nobody writes.
    threading.Thread(target=_clear_downloads, args=(command, output), name="downloads", daemon=True).start()
    return _supervise(plan, command, chosen, state, events, output)


def _first_problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in problems[:3])


def _command(plan: ServingPlan, chosen: Options) -> EngineCommand:
    return engine_command(
        plan,
        os.environ,
        chosen.engine_command,
        library=str(Path(__file__).resolve().parent.parent),
        port=chosen.engine_port,
        ipv6_only=is_ipv6_only(),
    )


class _AskedToEnd(Exception):
    """Someone ended the container before there was an engine."""


def _check_hardware(
    plan: ServingPlan, state: RuntimeState, events: SimpleQueue[Event], output: Output
) -> Failure | None:
    if plan.runtime.hardware.device != "cuda":
        return None
    # A driver that is lost may never answer, and a signal would wait for it.
    answer: list[FoundHardware] = []

    def ask() -> None:
        try:
            answer.append(nvml.find_hardware(nvml.load()))
        except Exception as error:  # whatever a strange driver or pynvml does: a fact, no crash
            answer.append(FoundHardware(note=f"NVML could not be asked: {error!r}"))
        events.put(Child())

    threading.Thread(target=ask, name="hardware", daemon=True).start()
    while not answer:
        state.turns()
        try:
            event = events.get(timeout=1.0)
        except Empty:
            event = None
        if isinstance(event, Asked):
            raise _AskedToEnd(f"{signal.Signals(event.signal).name} before there was an engine: ending at once")
        if not answer and state.remaining_seconds <= 0:
            return failure(
                "StartupTimeout",
                f"Not ready after {state.budget_seconds} s, in phase {state.phase.value}: the driver does not answer.",
            )
    found = answer[0]
    state.found(found)
    if found.note is not None:
        output.say(found.note)
    problems = shortcomings(plan.runtime.hardware, found)
    return failure("HardwareMismatch", "; ".join(problems) + ".") if problems else None


def _clear_shared_memory(output: Output) -> None:
    files, size = shared_memory.clear()
    if files:
        output.say(f"removed {files} files of {size >> 20} MiB that an earlier engine left in /dev/shm")


def _clear_downloads(command: EngineCommand, output: Output) -> None:
    try:
        files, size = downloads.clear(downloads.caches(command.env, command.argv))
    except OSError as error:
        output.say(f"what ended downloads left in the cache could not be looked for: {error}")
        return
    if files:
        output.say(f"removed {files} files of {size >> 20} MiB that downloads left which were ended")


def _supervise(
    plan: ServingPlan,
    command: EngineCommand,
    chosen: Options,
    state: RuntimeState,
    events: SimpleQueue[Event],
    output: Output,
) -> Failure | None:
    pool = PoolWatch(plan)

    def on_line(line: str) -> None:
        if pool.read(line):
            state.saw_pool(pool.seen())
        phase = None if state.was_ready else phase_of(line)
        if phase is not None and state.advance(phase):
            output.say(f"{phase.value} after {state.elapsed_seconds:.0f} s")
        lost = fatal(line)
        if lost is not None and not engine.listens():
            events.put(Lost(lost))

    engine = EngineProcess(command, output, on_line)
    client = EngineClient(command, plan.engine.version)
    adopt_orphans()
    watcher = Watcher(
        plan,
        client,
        state,
        is_head=command.is_head,
        say=output.say,
        on_failure=lambda lost: events.put(Lost(lost)),
        pool=pool,
        redact=output.redact,
        pace=Pace(patience=_patience(plan, chosen)),
    )
    supervisor = Supervisor(
        plan,
        engine,
        state,
        output,
        events,
        endpoint_delay_seconds=chosen.endpoint_delay_seconds,
        oom_kills=oom_kills,
        heal=client.heal,
        head_gone=None
        if command.is_head
        else Head(command.head, chosen.port, formed=lambda: state.was_ready).wait_until_gone,
    )
    return supervisor.run(watcher.run)


def _patience(plan: ServingPlan, chosen: Options) -> Patience:
    planned = patience(plan)
    return planned if chosen.hang_seconds is None else replace(planned, idle=chosen.hang_seconds)


def _explain(lost: Failure, path: Path, output: Output) -> None:
    """Writes the termination message, which the operator shows in the service's status."""
    lost = output.without_secrets(lost)
    output.say(f"{lost.reason}: {lost.message}")
    try:
        path.write_text(lost.model_dump_json(by_alias=True), encoding="utf-8")
    except OSError as error:
        output.say(f"the termination message could not be written: {error}")


if __name__ == "__main__":
    sys.exit(main())
