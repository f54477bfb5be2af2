"""One Job of ``kubectl vlm bench`` from its manifest to its result: existing servers, or a service and its twin. And the summary
in the service's status."""

from __future__ import annotations

import argparse
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Final

from vlm_api.status import Benchmark
from vlm_bench.commands.load_job import LoadJob, running, twin
from vlm_bench.commands.measured_service import MeasuredService, Other, measured_service
from vlm_bench.commands.output import Folder, ProgressBar
from vlm_bench.commands.prepared_twin import prepare_twin, wait_for_twin
from vlm_bench.load.job_manifest import begin_patch
from vlm_bench.load.schedule import SEEDS, Load, schedule
from vlm_bench.load.target import Target
from vlm_bench.statistics.result import Result
from vlm_bench.statistics.rounds import Round, round_of
from vlm_bench.twins.twin import Change
from vlm_operator.cli.cluster import Connection
from vlm_operator.errors import ClusterError
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError

READY_SECONDS: Final = 60
# A dead engine restarts some seconds after its last requests have failed.
RESTART_SECONDS: Final = 20
# The operator keeps ``status.benchmark`` from its last read, so a write that it had begun before may undo ours: check later.
SETTLED_SECONDS: Final = 2.0
TRIES: Final = 3


@dataclass
class Measurement:
    """A service under load, beside one server after the other."""

    options: argparse.Namespace
    connection: Connection
    subject: MeasuredService
    load: Load
    notes: list[str]
    folder: Folder
    seed: int
    """The next run's. Each run of all Jobs has another: the service must not get an image again that is new to its twin."""
    left: list[str] = field(default_factory=list)
    """What could not be deleted, with the command that deletes it."""

    def with_other(self, other: Other | None) -> Result:
        """The service, alone or in turns with another server. Raises ClusterError."""
        targets = [self.subject.target] if other is None else [self.subject.target, other.target]
        job = _Job(self, self._name(), targets, [*self.notes, *(other.notes if other is not None else ())])
        with job.progress, running(self.connection, job.manifest(), self.left) as created:
            collected = collect(created, job.progress, self.folder)
            services = [self.subject, other.measured] if other is not None and other.measured else [self.subject]
            return job.result(collected, services)

    def with_twin(self, change: Change) -> Result:
        """The service in turns with its twin. Raises ClusterError, and InvalidInput if the twin's spec is invalid."""
        self.subject = self._unchanged()
        replicas, name, seconds = self.subject.ready_replicas, self._name(), self.options.start_timeout
        prepared = prepare_twin(self.connection, self.subject, change, suffix=name[-6:], replicas=replicas)
        # The service reports the changed setting too, which it may leave to the engine.
        ours = replace(self.subject.target, settings=tuple(dict.fromkeys((*self.subject.target.settings, change.name))))
        job = _Job(self, name, [ours, prepared.target], [*self.notes])
        with job.progress, running(self.connection, job.manifest(seconds), self.left) as created:
            # It is waiting already. This only fails early, before the twin starts, for users who may not patch Jobs.
            created.hold()
            with twin(self.connection, prepared.manifest(created.owner), self.left):
                contrast = wait_for_twin(self.connection, prepared, seconds, job.progress.say)
                job.notes += [note] if (note := contrast.note(self.subject.service.name)) else []
                measured_twin = measured_service(self.connection, prepared.name)
                created.patch(begin_patch(job.runs, targets=2, ready_seconds=READY_SECONDS, waits_seconds=seconds))
                collected = collect(created, job.progress, self.folder)
                if replicas > 1:
                    # Each read may reach another replica.
                    job.notes.append(f"the counters of the twin are left out: its {replicas} replicas have one address")
                    collected.rounds = [r if r.target == 0 else replace(r, counters={}) for r in collected.rounds]
                return job.result(collected, [self.subject, measured_twin], contrast.change)

    def _name(self) -> str:
        return f"{self.options.name}-bench-{secrets.token_hex(3)}"

    def _unchanged(self) -> MeasuredService:
        """The service now, before another twin. Raises ClusterError if it has changed."""
        before, name = self.subject, self.options.name
        now = measured_service(self.connection, name)
        if now.ready_replicas != before.ready_replicas or now.plan.hash != before.plan.hash:
            raise ClusterError(
                f"{name} changed during the measurement (ready replicas: {before.ready_replicas}, now {now.ready_replicas}; plan "
                f"{before.plan.hash}, now {now.plan.hash}): measure again"
            )
        return now

    def save_summary(self, result: Result) -> str | None:
        """Writes ``status.benchmark``; why that failed, or None."""
        benchmark = summary(self.subject.plan.hash, result, datetime.now(timezone.utc))
        if benchmark is None:
            return None
        value = benchmark.to_api()
        # Only of the service that was measured, not of a new one with its name.
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": self.subject.raw["metadata"]["uid"]},
            {"op": "add", "path": "/status/benchmark", "value": value},
        ]
        client, name, namespace = self.connection.client, self.subject.service.name, self.connection.namespace
        try:
            for _ in range(TRIES):
                client.json_patch(kinds.VLM_SERVICE, namespace, name, patch, subresource="status")
                time.sleep(SETTLED_SECONDS)
                live = client.get(kinds.VLM_SERVICE, namespace, name) or {}
                if ((live.get("status") or {}).get("benchmark") or {}).get("time") == value["time"]:
                    return None
        except ApiError as error:
            return f"the summary is not in the status of {name}: {error.message}"
        return f"the summary is not in the status of {name}: update its CRD if it is older than this command"


def summary(plan_hash: str, result: Result, now: datetime) -> Benchmark | None:
    """The service's own numbers; of a curve, the concurrency with the most requests/s, and without failures if there is one:
    failed requests cost no time."""
    own = [each for each in result.summaries if each.target == 0]
    if not own:
        return None
    best = max(own, key=lambda each: (not each.failures, each.requests_per_second))
    return Benchmark.model_validate(
        {key: value for key, value in best.to_json().items() if key != "errors"}
        | {"time": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "planHash": plan_hash}
    )


class _Job:
    """What one Job sends, and its result."""

    def __init__(self, owner: Measurement, name: str, targets: Sequence[Target], notes: list[str]) -> None:
        self._owner, self._name, self._targets, self.notes = owner, name, targets, notes
        self._seed, rounds = owner.seed, owner.options.rounds
        self.runs = schedule(owner.load, targets=len(targets), rounds=rounds, first_seed=owner.seed)
        owner.seed = (owner.seed + len(self.runs)) % SEEDS
        self.progress = ProgressBar(sum(run.requests for run in self.runs), rounds, [t.name for t in targets])
        self._restarts = owner.subject.restarts(owner.connection)

    def manifest(self, waits_seconds: int | None = None) -> dict[str, Any]:
        owner, image = self._owner, self._owner.options.image
        options = {"ready_seconds": READY_SECONDS, "image": image, "waits_seconds": waits_seconds}
        return owner.subject.job(self._name, self._targets, self.runs, owner.load, **options)

    def result(self, collected: Collected, services: Sequence[MeasuredService], change: Change | None = None) -> Result:
        """Writes it, too: before anything is deleted, which may fail."""
        owner, name = self._owner, self._owner.options.name
        notes, withheld = [*self.notes, *collected.notes], None
        failed = collected.error is not None or any(each.failures for each in collected.rounds)
        try:
            changes = list(dict.fromkeys(filter(None, (each.change(owner.connection) for each in services))))
            withheld = "; ".join(changes) if len(self._targets) > 1 else None
            notes += changes
            if count := owner.subject.restarts_since(
                owner.connection, self._restarts, RESTART_SECONDS if failed else 0
            ):
                notes.append(f"containers of {name} restarted {count} times during the measurement")
        except ClusterError as error:
            notes.append(f"whether pods changed or restarted during the measurement is unknown: {error}")
        names = [target.name for target in self._targets]
        result = Result(
            service=name,
            command=shlex.join(["kubectl", "vlm", *sys.argv[1:]]),
            load=owner.load,
            seed=self._seed,
            targets=tuple(names if change is None else [names[0], change.label]),
            rounds=tuple(collected.rounds),
            planned=owner.subject.planned(),
            notes=tuple(notes),
            complete=collected.complete,
            error=collected.error,
            change=change,
            withheld=withheld or None,
        )
        owner.folder.result(result)
        return result


@dataclass
class Collected:
    """The events of a Job until its end."""

    rounds: list[Round] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = False
    """True: every run came to its end."""
    error: str | None = None
    """What ended it early."""


def collect(job: LoadJob, progress: ProgressBar, folder: Folder) -> Collected:
    """Raises ClusterError if it ended before anything was measured."""
    collected = Collected()
    try:
        for event in job.events():
            progress.event(event)
            if event["event"] == "ready":
                collected.notes += [
                    f"{name} does not support ignore_eos, so its answers may be shorter" for name in event["plain"]
                ]
            elif event["event"] == "round":
                folder.round(job.name, event)
                collected.rounds.append(round_of(event))
                progress.end(collected.rounds[-1])
            elif event["event"] == "failed":
                raise ClusterError(event["message"])
            elif event["event"] == "end":
                collected.complete = bool(event["complete"])
    except ClusterError as error:
        if not any(each.counted for each in collected.rounds):
            raise
        collected.error = str(error)
    return collected
