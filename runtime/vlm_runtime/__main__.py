"""The container's first process: ``python3 start.py`` beside the engine, or ``python3 -m vlm_runtime``."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue

from vlm_api.names import PLAN_KEY, PLAN_MOUNT, RUNTIME_PORT, TERMINATION_LOG
from vlm_api.report import Failure
from vlm_runtime.redact import Redactor, secrets_in
from vlm_runtime.report.log import Log, LogPipe, occupy_standard_streams
from vlm_runtime.supervise.run import Options, run
from vlm_runtime.supervise.supervisor import ChildExited, Event, StopRequested


def options(argv: Sequence[str] | None = None) -> Options:
    """Parses the command line; ends the process with code 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        "vlm_runtime", description="Runs and watches one pod's engine.", allow_abbrev=False
    )
    parser.add_argument("--plan", type=Path, default=Path(PLAN_MOUNT) / PLAN_KEY, help="the ServingPlan")
    parser.add_argument("--port", type=int, default=RUNTIME_PORT, help="of probes, metrics and report")
    parser.add_argument("--engine-port", type=int, help="replaces the port in the plan")
    parser.add_argument(
        "--engine-command",
        nargs=argparse.REMAINDER,
        default=[sys.executable, "-m", "sglang.launch_server"],
        help="the rest of the line: the program that gets the plan's arguments",
    )
    parser.add_argument(
        "--termination-log", type=Path, default=Path(TERMINATION_LOG), help="where to explain a failure"
    )
    parser.add_argument(
        "--endpoint-delay-seconds",
        type=float,
        default=5.0,
        help="how long to keep serving after SIGTERM, until no new requests arrive",
    )
    parser.add_argument(
        "--hang-seconds", type=float, help="how long the engine may stand still, instead of the plan's at least 120 s"
    )
    return Options(**vars(parser.parse_args(argv)))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the container: exit code 0 after a requested stop, else 1 with a termination message."""
    occupy_standard_streams()
    events: SimpleQueue[Event] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: events.put(StopRequested(n)))
    signal.signal(signal.SIGCHLD, lambda *_: events.put(ChildExited()))

    chosen = options(argv)
    log = Log(LogPipe(1), Redactor(secrets_in(os.environ)))
    failure = run(chosen, events, log)
    if failure is None:
        return 0
    _explain(failure, chosen.termination_log, log)
    return 1


def _explain(failure: Failure, path: Path, log: Log) -> None:
    """Writes the termination message, which the operator shows in the service's status."""
    failure = log.without_secrets(failure)
    log.write(f"{failure.reason}: {failure.message}")
    try:
        path.write_text(failure.model_dump_json(by_alias=True), encoding="utf-8")
    except OSError as error:
        log.write(f"cannot write the termination message: {error}")


if __name__ == "__main__":
    sys.exit(main())
