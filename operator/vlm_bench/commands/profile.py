"""``kubectl vlm profile``: where the engine's time goes under load, by its own profiler or by Nsight Systems."""

import argparse
import json
import shlex
import sys
from typing import Any, Final

from vlm_bench.commands.cleanup import ends_on_signals
from vlm_bench.commands.flags import NSIGHT_SECONDS, RECORD_SECONDS, START_TIMEOUT_SECONDS, STEPS
from vlm_bench.commands.measured_service import measured_service
from vlm_bench.commands.output import PROFILE, REPORT, Folder, show
from vlm_bench.commands.recording import Recording
from vlm_bench.load.job_manifest import LONGEST_SECONDS
from vlm_bench.load.schedule import load_of
from vlm_bench.reports.profile_report import kernels_report, profile_page, stage_report
from vlm_bench.traces.stages import DECODE, MIXED, PREFILL, UNMARKED, Stage, read_stages
from vlm_bench.traces.trace import TraceError
from vlm_bench.twins.nsight import kernel_sums
from vlm_operator.cli.cluster import connect
from vlm_operator.cli.console import make_console
from vlm_operator.errors import InvalidInput, InvalidInputs

TRACE_FILE: Final = "trace.json.gz"
NSIGHT_FILE: Final = "profile.nsys-rep"
MOST_STEPS: Final = 1000
# Flag -> its default.
OF_TORCH: Final = {"steps": STEPS, "timeout": RECORD_SECONDS, "stack": False}
OF_NSIGHT: Final = {"seconds": NSIGHT_SECONDS, "start_timeout": START_TIMEOUT_SECONDS}


def profile(options: argparse.Namespace) -> int:
    """Records, summarizes, prints and saves. Exit code 1 without a summary, if the engine restarted, or if something could not be
    deleted."""
    try:
        _check(options)
        connection = connect(options)
        subject = measured_service(connection, options.name)
        load, notes = load_of(
            subject.service,
            # A twin under Nsight Systems is one replica.
            replicas=1 if options.nsight else subject.ready_replicas,
            concurrency=[options.concurrency] if options.concurrency is not None else [],
        )
        left: list[str] = []
        restarts = subject.restarts(connection)
        with ends_on_signals(), Folder.create(options.folder, options.name, "profile") as folder:
            file = NSIGHT_FILE if options.nsight else TRACE_FILE
            recording = Recording(
                options, connection, subject, load, lambda recorded: folder.write(file, recorded.data), left
            )
            pod, recorded = recording.of_twin() if options.nsight else recording.of_service()
            stages: list[Stage] = []
            if options.nsight:
                kernels = kernel_sums(recorded.kernels)
                notes += recorded.notes or ([] if kernels else ["the recording holds no kernel of a GPU"])
                summary: dict[str, Any] = {"kernels": [kernel.to_json() for kernel in kernels]}
                parts = kernels_report(options.name, kernels) if kernels else []
            else:
                stages, more = summarize(recorded.data)
                notes += more
                summary = {"stages": [stage.to_json() for stage in stages]}
                parts = [part for stage in stages for part in stage_report(options.name, stage)]
            if restarted := subject.restarts_since(connection, restarts, 0):
                notes.append(f"containers of {options.name} restarted {restarted} times during the recording")
            command = shlex.join(["kubectl", "vlm", *sys.argv[1:]])
            document = {"service": options.name, "pod": pod, "command": command, "load": load.to_json(), "notes": notes}
            if not options.nsight:
                folder.write(REPORT, profile_page(options.name, stages, command, notes, [TRACE_FILE]))
            folder.write(PROFILE, json.dumps({**document, **summary}, indent=2))
    except InvalidInput as error:
        raise InvalidInputs([str(error)]) from error
    if options.output == "json":
        print(json.dumps({**document, **summary}, indent=2))
    else:
        console = make_console()
        show(console, parts)
        for note in notes:
            console.print(f"  Note: {note}", style="yellow")
        console.print(f"\nSaved in {folder.path}: {', '.join(folder.written)}")
        console.print(f"Open the recording in {'Nsight Systems' if options.nsight else 'ui.perfetto.dev'}.")
    return 0 if (options.nsight or stages) and not restarted and not left else 1


def _check(options: argparse.Namespace) -> None:
    """Checks the flags, and sets the defaults of those left out."""
    own, others = (OF_NSIGHT, OF_TORCH) if options.nsight else (OF_TORCH, OF_NSIGHT)
    for name in others:
        if getattr(options, name) is not None:
            why = "has no effect with --nsight, which records --seconds" if options.nsight else "is for --nsight"
            raise InvalidInput(_flag(name), f"{why}: leave one of them out")
    for name, default in own.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
        most, what = (MOST_STEPS, "a few are enough") if name == "steps" else (LONGEST_SECONDS, "give seconds")
        if default and not 1 <= (given := getattr(options, name)) <= most:
            raise InvalidInput(_flag(name), f"{given} is not between 1 and {most}: {what}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def summarize(data: bytes) -> tuple[list[Stage], list[str]]:
    """The trace's stages, and notes about them."""
    try:
        traces = read_stages(data)
    except TraceError as error:
        return [], [f"the trace cannot be summarized: {error}"]
    stages = [Stage(name, trace) for name, trace in traces.items()]
    if UNMARKED in traces:
        return stages, [
            "this engine does not mark its steps (SGLang does from 0.5.12 on): prefill and decode are one stage"
        ]
    missing = [stage for stage in (PREFILL, DECODE) if stage not in traces and MIXED not in traces]
    return stages, [
        f"the engine ran no {stage} step during the recording: record more with --steps" for stage in missing
    ]
