"""``kubectl vlm profile``: where the engine's time goes under load, by its own profiler or by Nsight Systems."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

from vlm_api.names import ENGINE_PORT, ENV_API_KEY
from vlm_operator.cli.bench_targets import Measured, measured
from vlm_operator.cli.cluster import Connection, connect
from vlm_operator.cli.console import make_console
from vlm_operator.cli.errors import InvalidInputs
from vlm_operator.cli.nsight import record_twin
from vlm_operator.cli.profile_tables import print_kernels, print_stage
from vlm_operator.cli.recording import Job, Recorded, job_name, serving_pod, under_load
from vlm_operator.cli.records import PROFILE, Records
from vlm_operator.cli.signals import ends_on_signals
from vlm_operator.errors import InvalidInput
from vlm_operator.measure.load import Load, load_of
from vlm_operator.measure.nsight import kernel_sums
from vlm_operator.measure.profile_report import profile_report
from vlm_operator.measure.stages import DECODE, MIXED, PREFILL, UNMARKED, read_stages
from vlm_operator.measure.timeline import Stage
from vlm_operator.measure.trace import TraceError

TRACE_FILE: Final = "trace.json.gz"
NSIGHT_FILE: Final = "profile.nsys-rep"
MOST_STEPS: Final = 1000


def profile(options: argparse.Namespace) -> int:
    """Records, sums up, prints and saves."""
    try:
        _check(options)
        connection = connect(options)
        subject = measured(connection, options.name)
        concurrency = [options.concurrency] if options.concurrency is not None else []
        load, notes = load_of(subject.service, replicas=subject.replicas, concurrency=concurrency)
        before = subject.restarts(connection)
        with ends_on_signals(), Records.begin(options.folder, options.name, "profile") as records:
            summary = _nsight if options.nsight else _torch
            found = summary(options, connection, subject, load, records, notes)
            restarted = subject.restarted(connection, before, 0)
            if restarted:
                found["notes"].append(f"containers of {options.name} were started anew {restarted} times meanwhile")
            records.write(PROFILE, json.dumps(found, indent=2))
    except InvalidInput as error:
        raise InvalidInputs([str(error)]) from error
    if options.output == "json":
        print(json.dumps(found, indent=2))
    else:
        console = make_console()
        for note in found["notes"]:
            console.print(f"  note: {note}")
        console.print(f"\nSaved in {records.folder}: {', '.join(records.written)}")
        console.print("The recording opens in " + ("Nsight Systems" if options.nsight else "ui.perfetto.dev"))
    return 0 if (options.nsight or found["stages"]) and not restarted else 1


def _check(options: argparse.Namespace) -> None:
    if not 1 <= options.steps <= MOST_STEPS:
        raise InvalidInput("--steps", f"{options.steps} is not between 1 and {MOST_STEPS}: a few say it all")
    for flag in ("seconds", "start_timeout", "timeout"):
        if (given := getattr(options, flag)) < 1:
            raise InvalidInput("--" + flag.replace("_", "-"), f"{given} is not above 0: give seconds")


def _torch(
    options: argparse.Namespace,
    connection: Connection,
    subject: Measured,
    load: Load,
    records: Records,
    notes: list[str],
) -> dict[str, Any]:
    """A trace of PyTorch's profiler, told apart by stages."""
    pod = serving_pod(connection, options.name)
    on_cpu = subject.plan.hardware is not None and subject.plan.hardware.device == "cpu"
    wanted = {
        "port": ENGINE_PORT,
        "steps": options.steps,
        "activities": ["CPU"] if on_cpu else ["CPU", "GPU"],
        "with_stack": options.stack,
        "seconds": options.timeout,
        "key_variable": ENV_API_KEY,
    }
    job = Job(job_name(options.name), subject.target, load, image=options.image)
    _, recorded = under_load(connection, subject, job, lambda *_: nullcontext(pod), wanted, keep(records, TRACE_FILE))
    stages, said = summed_up(recorded.data)
    found = _found(options, pod, load, [*notes, *said])
    files = [*records.written]
    records.write("report.html", profile_report(options.name, stages, found["command"], found["notes"], files))
    if options.output == "table":
        console = make_console()
        for each in stages:
            print_stage(console, options.name, each)
    return {**found, "stages": [stage.to_json() for stage in stages]}


def _nsight(
    options: argparse.Namespace,
    connection: Connection,
    subject: Measured,
    load: Load,
    records: Records,
    notes: list[str],
) -> dict[str, Any]:
    """A recording of Nsight Systems, summed up by kernels."""
    pod, recorded = record_twin(options, connection, subject, load, keep(records, NSIGHT_FILE))
    kernels = kernel_sums(recorded.kernels)
    notes = [*notes, *recorded.notes]
    if not kernels and not recorded.notes:
        notes.append("the recording holds no kernel of a GPU")
    if options.output == "table" and kernels:
        print_kernels(make_console(), options.name, kernels)
    return {**_found(options, pod, load, notes), "kernels": [kernel.to_json() for kernel in kernels]}


def keep(records: Records, name: str) -> Callable[[Recorded], None]:
    """Writes the file as soon as it is there, whatever goes wrong while the cluster is cleaned up."""
    return lambda recorded: records.write_bytes(name, recorded.data)


def _found(options: argparse.Namespace, pod: str, load: Load, notes: list[str]) -> dict[str, Any]:
    command = shlex.join(["kubectl", "vlm", *sys.argv[1:]])
    return {"service": options.name, "pod": pod, "command": command, "load": load.to_json(), "notes": notes}


def summed_up(data: bytes) -> tuple[list[Stage], list[str]]:
    """The trace's stages, and what is to be said about them."""
    try:
        found = read_stages(data)
    except TraceError as error:
        return [], [f"the trace cannot be summed up: {error}"]
    stages = [Stage(name, trace) for name, trace in found.items()]
    if UNMARKED in found:
        return stages, ["this engine does not mark its steps (SGLang does from 0.5.12 on): prefill and decode are one"]
    missing = [stage for stage in (PREFILL, DECODE) if stage not in found and MIXED not in found]
    return stages, [f"no step of {stage} came while it was recorded" for stage in missing]
