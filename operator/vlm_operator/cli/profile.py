"""``kubectl vlm profile``: where the engine's time goes under load, by its own profiler or by Nsight Systems."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from vlm_api.names import ENGINE_PORT, ENV_API_KEY
from vlm_operator.cli.bench_arguments import NSIGHT_SECONDS, RECORD_SECONDS, START_TIMEOUT_SECONDS, STEPS
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
from vlm_operator.measure.job import LONGEST_SECONDS
from vlm_operator.measure.load import Load, load_of
from vlm_operator.measure.nsight import kernel_sums
from vlm_operator.measure.profile_report import profile_report
from vlm_operator.measure.stages import DECODE, MIXED, PREFILL, UNMARKED, read_stages
from vlm_operator.measure.timeline import Stage
from vlm_operator.measure.trace import TraceError

TRACE_FILE: Final = "trace.json.gz"
NSIGHT_FILE: Final = "profile.nsys-rep"
MOST_STEPS: Final = 1000
# Flag -> what it is where it is left out.
OF_TORCH: Final = {"steps": STEPS, "timeout": RECORD_SECONDS, "stack": False}
OF_NSIGHT: Final = {"seconds": NSIGHT_SECONDS, "start_timeout": START_TIMEOUT_SECONDS}


def profile(options: argparse.Namespace) -> int:
    """Records, sums up, prints and saves."""
    try:
        _check(options)
        connection = connect(options)
        subject = measured(connection, options.name)
        concurrency = [options.concurrency] if options.concurrency is not None else []
        # A twin below Nsight Systems is one replica.
        replicas = 1 if options.nsight else subject.replicas
        load, notes = load_of(subject.service, replicas=replicas, concurrency=concurrency)
        with ends_on_signals(), Records.begin(options.folder, options.name, "profile") as records:
            profiled = _Profiled(options, connection, subject, load, records, notes, subject.restarts(connection))
            found = profiled.by_nsight() if options.nsight else profiled.by_torch()
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
    sound = (options.nsight or found["stages"]) and not profiled.restarted and not profiled.left
    return 0 if sound else 1


def _check(options: argparse.Namespace) -> None:
    """Fills in what was left open, too."""
    own, others = (OF_NSIGHT, OF_TORCH) if options.nsight else (OF_TORCH, OF_NSIGHT)
    for name in others:
        if getattr(options, name) is not None:
            why = "has no meaning with --nsight, which records --seconds" if options.nsight else "belongs to --nsight"
            raise InvalidInput(_flag(name), f"{why}: leave one of them out")
    for name, usual in own.items():
        if getattr(options, name) is None:
            setattr(options, name, usual)
        most, what = (MOST_STEPS, "a few say it all") if name == "steps" else (LONGEST_SECONDS, "give seconds")
        if usual and not 1 <= (given := getattr(options, name)) <= most:
            raise InvalidInput(_flag(name), f"{given} is not between 1 and {most}: {what}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass
class _Profiled:
    """A service under the load that it is recorded with."""

    options: argparse.Namespace
    connection: Connection
    subject: Measured
    load: Load
    records: Records
    notes: list[str]
    before: int
    """Restarts of its containers before."""
    restarted: int = 0
    """Restarts meanwhile."""
    left: list[str] = field(default_factory=list)
    """What could not be removed, with the command that does it."""

    def by_torch(self) -> dict[str, Any]:
        """A trace of PyTorch's profiler, told apart by stages."""
        pod = serving_pod(self.connection, self.options.name)
        on_cpu = self.subject.plan.hardware is not None and self.subject.plan.hardware.device == "cpu"
        wanted = {
            "port": ENGINE_PORT,
            "tls": self.subject.target.certificate is not None,
            "steps": self.options.steps,
            "activities": ["CPU"] if on_cpu else ["CPU", "GPU"],
            "with_stack": self.options.stack,
            "seconds": self.options.timeout,
            "key_variable": ENV_API_KEY,
        }
        job = Job(job_name(self.options.name), self.subject.target, self.load, image=self.options.image)
        _, recorded = under_load(
            self.connection, self.subject, job, lambda *_: nullcontext(pod), wanted, keep(self.records, TRACE_FILE),
            self.left,
        )  # fmt: skip
        stages, said = summed_up(recorded.data)
        found = self._found(pod, said)
        files = [*self.records.written]
        self.records.write(
            "report.html", profile_report(self.options.name, stages, found["command"], found["notes"], files)
        )
        if self.options.output == "table":
            console = make_console()
            for each in stages:
                print_stage(console, self.options.name, each)
        return {**found, "stages": [stage.to_json() for stage in stages]}

    def by_nsight(self) -> dict[str, Any]:
        """A recording of Nsight Systems, summed up by kernels."""
        pod, recorded = record_twin(
            self.options, self.connection, self.subject, self.load, keep(self.records, NSIGHT_FILE), self.left
        )
        kernels = kernel_sums(recorded.kernels)
        notes = [*recorded.notes]
        if not kernels and not recorded.notes:
            notes.append("the recording holds no kernel of a GPU")
        if self.options.output == "table" and kernels:
            print_kernels(make_console(), self.options.name, kernels)
        return {**self._found(pod, notes), "kernels": [kernel.to_json() for kernel in kernels]}

    def _found(self, pod: str, notes: list[str]) -> dict[str, Any]:
        self.restarted = self.subject.restarted(self.connection, self.before, 0)
        name, notes = self.options.name, [*self.notes, *notes]
        if self.restarted:
            notes.append(f"containers of {name} were started anew {self.restarted} times meanwhile")
        command = shlex.join(["kubectl", "vlm", *sys.argv[1:]])
        return {"service": name, "pod": pod, "command": command, "load": self.load.to_json(), "notes": notes}


def keep(records: Records, name: str) -> Callable[[Recorded], None]:
    """Writes the file as soon as it is there, whatever goes wrong while the cluster is cleaned up."""
    return lambda recorded: records.write_bytes(name, recorded.data)


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
