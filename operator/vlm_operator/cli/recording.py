"""Recording an engine while the declared workload runs: the load's Job, and the recorder in the engine's pod."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from vlm_api.names import MAIN_CONTAINER
from vlm_operator.cli.bench_targets import Measured, is_ready, leads
from vlm_operator.cli.cluster import Connection
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.load_job import LoadJob, running
from vlm_operator.cli.progress import Progress
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.kube.pod_streams import run_in
from vlm_operator.measure.job import bench_job
from vlm_operator.measure.load import Load
from vlm_operator.measure.programs import program
from vlm_operator.measure.recorder import MARK
from vlm_operator.measure.schedule import schedule
from vlm_operator.measure.target import Target

READY_SECONDS: Final = 60
RUN_LINE: Final = "import base64, sys; exec(base64.b64decode(sys.stdin.readline()))"
# The load has to outlast the recording: waves of requests after the one that starts it, and enough of them where they
# are small. Their images are made beforehand, so of large ones there are fewer.
WAVES: Final = 20
FEWEST_REQUESTS: Final = 400
MOST_IMAGE_BYTES: Final = 2 * 2**30

PodOf = Callable[[LoadJob, Progress], AbstractContextManager[str]]


@dataclass(frozen=True)
class Recorded:
    """What the recorder sent."""

    data: bytes
    """The profiler's file."""
    kernels: str = ""
    """Nsight Systems' own sums as CSV; empty where it made none."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """The load: whom it asks, and how."""

    name: str
    target: Target
    load: Load
    ready_seconds: int = READY_SECONDS
    image: str | None = None


def serving_pod(connection: Connection, name: str) -> str:
    """The pod that is recorded: the first that answers; of a group, its leader."""
    for pod in connection.pods(name):
        if is_ready(pod) and leads(pod):
            return str(pod["metadata"]["name"])
    raise ClusterError(f"no pod of {name} is ready: `kubectl vlm status {name}` says why")


def job_name(service: str) -> str:
    """One that no other has."""
    return f"{service}-bench-{secrets.token_hex(3)}"


def requests_for(load: Load) -> int:
    """How many requests outlast a recording, within what their images may take in memory."""
    concurrency = load.concurrency[0]
    wanted = max(WAVES * concurrency, FEWEST_REQUESTS)
    return min(wanted, max(MOST_IMAGE_BYTES // max(load.request_bytes, 1), 2 * concurrency))


def under_load(
    connection: Connection,
    subject: Measured,
    job: Job,
    pod_of: PodOf,
    wanted: dict[str, Any],
    keep: Callable[[Recorded], None],
    left: list[str],
) -> tuple[str, Recorded]:
    """The pod and what was recorded in it while the load was at its height.

    ``wanted``: the recorder's options. ``keep`` gets the recording before anything is removed; what could not be
    removed is added to ``left``.
    """
    runs = schedule(job.load, targets=1, rounds=1, first_seed=secrets.randbelow(2**31))
    runs[-1] = type(runs[-1])(**{**runs[-1].to_json(), "requests": requests_for(job.load)})
    manifest = bench_job(
        subject.template,
        name=job.name,
        namespace=connection.namespace,
        service=subject.service.name,
        owner=owner_reference(subject.raw),
        targets=[job.target],
        runs=runs,
        load=job.load,
        ready_seconds=job.ready_seconds,
        image=job.image,
    )
    with (
        Progress(sum(run.requests for run in runs), 1, [job.target.name]) as progress,
        running(connection, manifest, left) as made,
        pod_of(made, progress) as pod,
    ):
        counted = False
        for event in made.events():
            if event["event"] == "failed":
                raise ClusterError(event["message"])
            if event["event"] == "begin":
                progress.begin(event["round"], event["target"], event["concurrency"])
                counted = event["round"] > 0
            elif event["event"] == "progress":
                progress.done(event["done"])
                if counted:
                    # Answers have come: as many requests run as will.
                    recorded = record_in(connection, pod, wanted, progress.say)
                    keep(recorded)
                    return pod, recorded
    raise ClusterError(f"no request to {job.target.name} was answered, so nothing was recorded")


def record_in(connection: Connection, pod: str, wanted: dict[str, Any], say: Callable[[str], None]) -> Recorded:
    """Runs the recorder in the engine's container. Raises ClusterError."""
    # By standard input: a command's arguments stand in the request's URL, which proxies allow a few kilobytes.
    command = ["python3", "-c", RUN_LINE, json.dumps(wanted)]
    text = base64.b64encode(program("recorder").encode()).decode()
    try:
        return received(run_in(connection.namespace, pod, MAIN_CONTAINER, command, text), say)
    except ApiError as error:
        hint = ": the command needs the right to create pods/exec" if error.status == 403 else ""
        raise ClusterError(f"{error.message}{hint}") from error


def received(lines: Iterator[str], say: Callable[[str], None]) -> Recorded:
    """What the recorder's lines hold. Raises ClusterError with what it said went wrong, or where the file is cut off."""
    data, expected = bytearray(), 0
    kernels = ""
    notes: tuple[str, ...] = ()
    for line in lines:
        try:
            event = json.loads(line.removeprefix(MARK)) if line.startswith(MARK) else None
            if event is None:
                data += base64.b64decode(line)
                continue
        except ValueError:
            # What a connection that breaks off leaves of a line, or somebody else's words: the bytes are counted below.
            continue
        if event["event"] == "failed":
            raise ClusterError(event["message"])
        if event["event"] == "recording":
            say(f"recording {event['steps']} steps" if "steps" in event else f"recording {event['seconds']} s")
        elif event["event"] == "kernels":
            kernels = event["csv"]
            notes = (f"the recording is not summed up: {event['why']}",) if "why" in event else ()
        elif event["event"] == "trace":
            data, expected = bytearray(), event["bytes"]
            say(f"fetching the recording, {expected / 2**20:.1f} MiB")
        elif event["event"] == "sent" and len(data) == expected:
            return Recorded(bytes(data), kernels, notes)
    raise ClusterError(f"the recording was cut off: {len(data)} of {expected} bytes came")
