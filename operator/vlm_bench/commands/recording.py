"""Recording an engine while the declared workload runs: the load's Job, and the recorder in the pod of the service or, with
Nsight Systems, of its twin."""

import argparse
import base64
import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from vlm_api.names import ENGINE_PORT, ENV_API_KEY, MAIN_CONTAINER
from vlm_bench.commands.load_job import LoadJob, running, twin
from vlm_bench.commands.measured_service import MeasuredService, ready_pods
from vlm_bench.commands.output import ProgressBar
from vlm_bench.commands.prepared_twin import prepare_twin, wait_for_twin
from vlm_bench.load.schedule import Load, schedule
from vlm_bench.load.target import Target
from vlm_bench.programs import program
from vlm_bench.programs.recorder import MARK
from vlm_bench.twins.nsight import SESSION, under_nsight
from vlm_operator.cli.cluster import Connection
from vlm_operator.errors import ClusterError
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.pod_streams import run_in

READY_SECONDS: Final = 60
RUN_LINE: Final = "import base64, sys; exec(base64.b64decode(sys.stdin.readline()))"
# The load has to outlast the recording: waves of requests, and enough requests if the waves are small. Images are made
# beforehand, so there are fewer large ones.
WAVES: Final = 20
FEWEST_REQUESTS: Final = 400
MOST_IMAGE_BYTES: Final = 2 * 2**30
NO_EXEC: Final = ": you need the right to create pods/exec"

PodOf = Callable[[LoadJob, ProgressBar], AbstractContextManager[str]]


@dataclass(frozen=True)
class Recorded:
    """The recorder's output."""

    data: bytes
    """The profiler's file."""
    kernels: str = ""
    """Nsight Systems' own summary as CSV; empty without one."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recording:
    """How a service is recorded under load. ``keep`` gets the recording before anything is deleted; what could not be deleted is
    added to ``left``."""

    options: argparse.Namespace
    connection: Connection
    subject: MeasuredService
    load: Load
    keep: Callable[[Recorded], None]
    left: list[str]

    def of_service(self) -> tuple[str, Recorded]:
        """The service's pod and its recording by the engine's own profiler. Raises ClusterError."""
        pod = _ready_pod(self.connection, self.options.name)
        on_cpu = self.subject.plan.hardware is not None and self.subject.plan.hardware.device == "cpu"
        recorder_options = {
            "port": ENGINE_PORT,
            "tls": self.subject.target.certificate is not None,
            "steps": self.options.steps,
            "activities": ["CPU"] if on_cpu else ["CPU", "GPU"],
            "with_stack": self.options.stack,
            "seconds": self.options.timeout,
            "key_variable": ENV_API_KEY,
        }
        return self._under_load(
            self._name(), self.subject.target, READY_SECONDS, lambda *_: nullcontext(pod), recorder_options
        )

    def of_twin(self) -> tuple[str, Recorded]:
        """A twin's pod and its recording by Nsight Systems. Raises ClusterError, and InvalidInput if the template prevents it."""
        connection, name, seconds = self.connection, self._name(), self.options.start_timeout
        _require_nsys(connection, _ready_pod(connection, self.options.name))
        prepared = prepare_twin(connection, self.subject, None, suffix=name[-6:], label="under Nsight Systems")
        under_nsight(prepared.manifest({}))  # raises before anything is created

        @contextmanager
        def pod_of(job: LoadJob, progress: ProgressBar) -> Iterator[str]:
            with twin(connection, under_nsight(prepared.manifest(job.owner)), self.left) as created:
                wait_for_twin(connection, prepared, seconds, progress.say)
                yield _ready_pod(connection, created)

        recorder_options = {"session": SESSION, "seconds": self.options.seconds}
        return self._under_load(name, prepared.target, seconds, pod_of, recorder_options)

    def _name(self) -> str:
        return f"{self.options.name}-bench-{secrets.token_hex(3)}"

    def _under_load(
        self, name: str, target: Target, ready_seconds: int, pod_of: PodOf, recorder_options: dict[str, Any]
    ) -> tuple[str, Recorded]:
        """The pod and its recording. Raises ClusterError."""
        concurrency = self.load.concurrency[0]
        load = Load(**{**vars(self.load), "requests": requests_for(self.load)})
        runs = schedule(load, targets=1, rounds=1, first_seed=secrets.randbelow(2**31))
        image = self.options.image
        manifest = self.subject.job(name, [target], runs, load, ready_seconds=ready_seconds, image=image)
        with (
            ProgressBar(sum(run.requests for run in runs), 1, [target.name]) as progress,
            running(self.connection, manifest, self.left) as job,
            pod_of(job, progress) as pod,
        ):
            is_counted = False
            for event in job.events():
                progress.event(event)
                if event["event"] == "failed":
                    raise ClusterError(event["message"])
                if event["event"] == "begin":
                    is_counted = event["round"] > 0
                elif event["event"] == "progress" and is_counted:
                    # Requests have been answered, so the concurrency is reached.
                    recorded = record_in(self.connection, pod, recorder_options, progress.say)
                    self.keep(recorded)
                    return pod, recorded
        raise ClusterError(
            f"no request to {target.name} was answered at concurrency {concurrency}, so nothing was recorded: see "
            f"`kubectl vlm bench {self.options.name}`"
        )


def requests_for(load: Load) -> int:
    """How many requests outlast a recording, within the memory for their images."""
    concurrency = load.concurrency[0]
    wanted = max(WAVES * concurrency, FEWEST_REQUESTS)
    return min(wanted, max(MOST_IMAGE_BYTES // max(load.request_bytes, 1), 2 * concurrency))


def _ready_pod(connection: Connection, name: str) -> str:
    pods = ready_pods(connection, name)
    if not pods:
        raise ClusterError(f"no pod of {name} is ready: see `kubectl vlm status {name}`")
    return pods[0].name


def _require_nsys(connection: Connection, pod: str) -> None:
    try:
        list(run_in(connection.namespace, pod, MAIN_CONTAINER, ["sh", "-c", "command -v nsys"]))
    except ApiError as error:
        if error.reason != "CommandFailed":
            raise ClusterError(f"{error.message}{NO_EXEC if error.status == 403 else ''}") from error
        raise ClusterError(
            "the engine's image has no nsys: set spec.engine.image to one with Nsight Systems, or leave out --nsight for "
            "a trace of PyTorch's profiler"
        ) from error


def record_in(connection: Connection, pod: str, options: dict[str, Any], say: Callable[[str], None]) -> Recorded:
    """Runs the recorder in the engine's container. Raises ClusterError."""
    # By standard input: arguments are part of the request's URL, for which proxies allow a few kilobytes.
    command = ["python3", "-c", RUN_LINE, json.dumps(options)]
    text = base64.b64encode(program("recorder").encode()).decode()
    try:
        return received(run_in(connection.namespace, pod, MAIN_CONTAINER, command, text), say)
    except ApiError as error:
        raise ClusterError(f"{error.message}{NO_EXEC if error.status == 403 else ''}") from error


def received(lines: Iterable[str], say: Callable[[str], None]) -> Recorded:
    """The content of the recorder's lines. Raises ClusterError with its error, or if the file is cut off."""
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
            # A line cut off with the connection, or one from another program: the bytes are counted below.
            continue
        if event["event"] == "failed":
            raise ClusterError(event["message"])
        if event["event"] == "recording":
            say(f"recording {event['steps']} steps" if "steps" in event else f"recording {event['seconds']} s")
        elif event["event"] == "kernels":
            kernels = event["csv"]
            notes = (f"the recording is not summarized: {event['why']}",) if "why" in event else ()
        elif event["event"] == "trace":
            data, expected = bytearray(), event["bytes"]
            say(f"fetching the recording, {expected / 2**20:.1f} MiB")
        elif event["event"] == "sent" and len(data) == expected:
            return Recorded(bytes(data), kernels, notes)
    raise ClusterError(f"the recording was cut off, {len(data)} of {expected} bytes arrived: try again")
