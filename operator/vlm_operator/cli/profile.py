"""``kubectl vlm profile``: where the engine's time goes under load, by its own profiler."""

from __future__ import annotations

import argparse
import base64
import json
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from vlm_api.names import ENGINE_PORT, ENV_API_KEY, MAIN_CONTAINER
from vlm_operator.cli.bench_targets import Measured, is_ready, leads, measured
from vlm_operator.cli.cluster import Connection, connect
from vlm_operator.cli.console import make_console
from vlm_operator.cli.errors import ClusterError, InvalidInputs
from vlm_operator.cli.load_job import running
from vlm_operator.cli.profile_tables import print_stage
from vlm_operator.cli.progress import Progress
from vlm_operator.cli.records import Records
from vlm_operator.cli.signals import ends_on_signals
from vlm_operator.errors import InvalidInput
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.kube.pod_streams import run_in
from vlm_operator.measure.job import bench_job, program
from vlm_operator.measure.load import load_of
from vlm_operator.measure.profile_report import profile_report
from vlm_operator.measure.recorder import MARK
from vlm_operator.measure.schedule import schedule
from vlm_operator.measure.stages import DECODE, PREFILL, UNMARKED, read_stages
from vlm_operator.measure.timeline import Stage
from vlm_operator.measure.trace import TraceError

READY_SECONDS: Final = 60
RUN_LINE: Final = "import base64, sys; exec(base64.b64decode(sys.stdin.readline()))"
TRACE_FILE: Final = "trace.json.gz"
# The load has to outlast the recording: waves of requests after the one that starts it, and enough of them where they
# are small. Their images are made beforehand, so there cannot be any number.
WAVES: Final = 20
FEWEST_REQUESTS: Final = 400


def profile(options: argparse.Namespace) -> int:
    """Records, sums up, prints and saves."""
    try:
        if not 1 <= options.steps <= 1000:
            raise InvalidInput("--steps", f"{options.steps} is not between 1 and 1000: a few say it all")
        connection = connect(options)
        subject = measured(connection, options.name)
        concurrency = [options.concurrency] if options.concurrency is not None else []
        load, notes = load_of(subject.service, replicas=subject.replicas, concurrency=concurrency)
    except InvalidInput as error:
        raise InvalidInputs([str(error)]) from error
    pod = _pod(connection, options.name)
    before = subject.restarts(connection)
    with ends_on_signals(), Records.begin(options.folder, options.name, "profile") as records:
        data = _record(options, connection, subject, load, pod)
        records.write_bytes(TRACE_FILE, data)
        stages, said = summed_up(data)
        notes += said
        if restarted := subject.restarted(connection, before, 0):
            notes.append(f"containers of {options.name} were started anew {restarted} times meanwhile")
        command = shlex.join(["kubectl", "vlm", *sys.argv[1:]])
        files = [*records.written]
        found = {"service": options.name, "pod": pod, "command": command, "load": load.to_json(), "notes": notes}
        records.write("profile.json", json.dumps({**found, "stages": [s.to_json() for s in stages]}, indent=2))
        records.write("report.html", profile_report(options.name, stages, command, notes, files))
    if options.output == "json":
        print(json.dumps({**found, "stages": [s.to_json() for s in stages]}, indent=2))
    else:
        console = make_console()
        for each in stages:
            print_stage(console, options.name, each)
        for note in notes:
            console.print(f"  note: {note}")
        console.print(f"\nSaved in {records.folder}: {', '.join(records.written)}")
        console.print("The traces open in ui.perfetto.dev")
    return 0 if stages and not restarted else 1


def summed_up(data: bytes) -> tuple[list[Stage], list[str]]:
    """The trace's stages, and what is to be said about them."""
    try:
        found = read_stages(data)
    except TraceError as error:
        return [], [f"the trace cannot be summed up: {error}"]
    stages = [Stage(name, trace) for name, trace in found.items()]
    if UNMARKED in found:
        return stages, ["this engine does not mark its steps (SGLang does from 0.5.12 on): prefill and decode are one"]
    missing = [stage for stage in (PREFILL, DECODE) if stage not in found]
    return stages, [f"no step of {stage} came while it was recorded" for stage in missing]


def _pod(connection: Connection, name: str) -> str:
    """The pod that is recorded: the first that answers; of a group, its leader."""
    for pod in connection.pods(name):
        if is_ready(pod) and leads(pod):
            return str(pod["metadata"]["name"])
    raise ClusterError(f"no pod of {name} is ready: `kubectl vlm status {name}` says why")


def _record(options: argparse.Namespace, connection: Connection, subject: Measured, load: Any, pod: str) -> bytes:
    """The trace, recorded while the load is at its height."""
    concurrency = load.concurrency[0]
    runs = schedule(load, targets=1, rounds=1, first_seed=secrets.randbelow(2**31))
    runs[-1] = type(runs[-1])(**{**runs[-1].to_json(), "requests": max(WAVES * concurrency, FEWEST_REQUESTS)})
    manifest = bench_job(
        subject.template,
        name=f"{options.name}-bench-{secrets.token_hex(3)}",
        namespace=connection.namespace,
        service=options.name,
        owner=owner_reference(subject.raw),
        targets=[subject.target],
        runs=runs,
        load=load,
        ready_seconds=READY_SECONDS,
        image=options.image,
    )
    with (
        Progress(sum(run.requests for run in runs), 1, [options.name]) as progress,
        running(connection, manifest) as job,
    ):
        for event in job.events():
            if event["event"] == "failed":
                raise ClusterError(event["message"])
            if event["event"] == "begin":
                progress.begin(event["round"], event["target"], event["concurrency"])
                counted = event["round"] > 0
            elif event["event"] == "progress":
                progress.done(event["done"])
                if counted:
                    # Answers have come: as many requests run as will.
                    progress.say(f"recording {options.steps} steps of each stage in {pod}")
                    return _trace(options, connection, subject, pod, progress)
    raise ClusterError(f"no request to {options.name} was answered, so nothing was recorded")


def _trace(
    options: argparse.Namespace, connection: Connection, subject: Measured, pod: str, progress: Progress
) -> bytes:
    on_cpu = subject.plan.hardware is not None and subject.plan.hardware.device == "cpu"
    wanted = {
        "port": ENGINE_PORT,
        "steps": options.steps,
        "activities": ["CPU"] if on_cpu else ["CPU", "GPU"],
        "with_stack": options.stack,
        "seconds": options.timeout,
        "key_variable": ENV_API_KEY,
    }
    # By standard input: a command's arguments stand in the request's URL, which proxies allow a few kilobytes.
    command = ["python3", "-c", RUN_LINE, json.dumps(wanted)]
    text = base64.b64encode(program("recorder").encode()).decode()
    try:
        return received(run_in(connection.namespace, pod, MAIN_CONTAINER, command, text), progress.say)
    except ApiError as error:
        hint = ": the command needs the right to create pods/exec" if error.status == 403 else ""
        raise ClusterError(f"{error.message}{hint}") from error


def received(lines: Iterator[str], say: Callable[[str], None]) -> bytes:
    """The trace in the recorder's lines. Raises ClusterError with what it said went wrong, or where it is cut off."""
    data, expected = bytearray(), 0
    for line in lines:
        if not line.startswith(MARK):
            data += base64.b64decode(line)
            continue
        event = json.loads(line.removeprefix(MARK))
        if event["event"] == "failed":
            raise ClusterError(event["message"])
        if event["event"] == "recording":
            say(f"recording {event['steps']} steps")
        elif event["event"] == "trace":
            data, expected = bytearray(), event["bytes"]
            say(f"fetching the trace, {expected / 2**20:.1f} MiB")
        elif event["event"] == "sent" and len(data) == expected:
            return bytes(data)
    raise ClusterError(f"the trace was cut off: {len(data)} of {expected} bytes came")
