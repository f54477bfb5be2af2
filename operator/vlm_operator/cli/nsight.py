"""``kubectl vlm profile --nsight``: a twin of the service below Nsight Systems, recorded under load, then removed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from vlm_api.names import MAIN_CONTAINER
from vlm_operator.cli.bench_targets import Measured
from vlm_operator.cli.bench_twin import start, twin_target
from vlm_operator.cli.cluster import Connection
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.load_job import LoadJob, twin
from vlm_operator.cli.progress import Progress
from vlm_operator.cli.recording import Job, Recorded, job_name, serving_pod, under_load
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.pod_streams import run_in
from vlm_operator.measure.load import Load
from vlm_operator.measure.nsight import SESSION, below_nsight

LABEL: Final = "below Nsight Systems"


def record_twin(
    options: argparse.Namespace,
    connection: Connection,
    subject: Measured,
    load: Load,
    keep: Callable[[Recorded], None],
    left: list[str],
) -> tuple[str, Recorded]:
    """The twin's pod and its recording. Raises ClusterError, and InvalidInput where the template stands against it."""
    _image_has_nsys(connection, serving_pod(connection, options.name))
    name = job_name(options.name)
    prepared = twin_target(connection, subject, None, suffix=name[-6:], label=LABEL)
    below_nsight(prepared.manifest({}))  # refused before anything is made

    @contextmanager
    def pod_of(job: LoadJob, progress: Progress) -> Iterator[str]:
        with twin(connection, below_nsight(prepared.manifest(job.owner)), left) as made:
            start(connection, prepared, options.start_timeout, progress.say)
            yield serving_pod(connection, made)

    job = Job(name, prepared.target, load, ready_seconds=options.start_timeout, image=options.image)
    return under_load(connection, subject, job, pod_of, {"session": SESSION, "seconds": options.seconds}, keep, left)


def _image_has_nsys(connection: Connection, pod: str) -> None:
    try:
        list(run_in(connection.namespace, pod, MAIN_CONTAINER, ["sh", "-c", "command -v nsys"]))
    except ApiError as error:
        if error.reason != "CommandFailed":
            hint = ": the command needs the right to create pods/exec" if error.status == 403 else ""
            raise ClusterError(f"{error.message}{hint}") from error
        raise ClusterError(
            "the engine's image has no nsys: set spec.engine.image to one with Nsight Systems in it, "
            "or leave --nsight out for a trace of PyTorch's profiler"
        ) from error
