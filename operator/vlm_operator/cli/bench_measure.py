"""One Job of ``kubectl vlm bench`` from its making to its result: two servers that are there, or a service and its twin."""

from __future__ import annotations

import argparse
import secrets
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from vlm_operator.cli.bench_targets import Measured, Other, measured
from vlm_operator.cli.bench_twin import Prepared, start, twin_target
from vlm_operator.cli.cluster import Connection
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.load_job import LoadJob, running, twin
from vlm_operator.cli.progress import Progress
from vlm_operator.cli.records import Records
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.measure.job import begun, bench_job
from vlm_operator.measure.load import Load
from vlm_operator.measure.result import Result
from vlm_operator.measure.rounds import Round, round_of
from vlm_operator.measure.schedule import SEEDS, Run, schedule
from vlm_operator.measure.target import Target
from vlm_operator.measure.twin import Change

READY_SECONDS: Final = 60
# An engine that died is started anew some seconds after its last requests have failed.
RESTART_SECONDS: Final = 20


@dataclass
class Bench:
    """A service under its load, beside one server after the other."""

    options: argparse.Namespace
    connection: Connection
    subject: Measured
    load: Load
    notes: list[str]
    records: Records
    seed: int
    """The next run's. Each run has another, over all Jobs: the service must not meet an image again that is new to its
    twin."""
    left: list[str] = field(default_factory=list)
    """What could not be removed, with the command that does it."""

    def beside(self, other: Other | None) -> Result:
        """The service, alone or in turns with another server. Raises ClusterError."""
        targets = [self.subject.target] if other is None else [self.subject.target, other.target]
        job = _Job(self, self._name(), targets, [*self.notes, *(other.notes if other is not None else ())])
        with job.progress as progress, running(self.connection, job.manifest(), self.left) as made:
            found = follow(made, progress, self.records)
            services = [self.subject, other.measured] if other is not None and other.measured else [self.subject]
            return job.result(found, services)

    def beside_twin(self, change: Change) -> Result:
        """The service in turns with its twin. Raises ClusterError, and InvalidInput where the twin's spec is wrong."""
        self.subject = self._still()
        replicas, name, seconds = self.subject.replicas, self._name(), self.options.start_timeout
        prepared = twin_target(self.connection, self.subject, change, suffix=name[-6:], replicas=replicas)
        # The service is asked for the changed setting too, which it may leave to the engine.
        told = tuple(dict.fromkeys((*self.subject.target.settings, change.name)))
        ours = replace(self.subject.target, settings=told)
        job = _Job(self, name, [ours, prepared.target], [*self.notes])
        with (
            job.progress as progress,
            running(self.connection, job.manifest(waits_seconds=seconds), self.left) as made,
        ):
            # It waits already. Who may not patch Jobs learns it now, not when the twin has started.
            made.hold()
            with twin(self.connection, prepared.manifest(made.owner), self.left):
                return self._with_twin(prepared, job, made, progress)

    def _with_twin(self, prepared: Prepared, job: _Job, made: LoadJob, progress: Progress) -> Result:
        contrast = start(self.connection, prepared, self.options.start_timeout, progress.say)
        job.notes += [said] if (said := contrast.note(self.subject.service.name)) else []
        made_twin = measured(self.connection, prepared.name)
        made.change(job.begun(self.options.start_timeout))
        found = follow(made, progress, self.records)
        if prepared.replicas > 1:
            # Each time another replica may have been asked.
            job.notes.append(
                f"the counters of the twin are left out, since its {prepared.replicas} replicas have one address"
            )
            found.rounds = [each if each.target == 0 else replace(each, counters={}) for each in found.rounds]
        return job.result(found, [self.subject, made_twin], contrast.change)

    def _name(self) -> str:
        return f"{self.options.name}-bench-{secrets.token_hex(3)}"

    def _still(self) -> Measured:
        """The service as it stands now, before another twin. Raises ClusterError where it is no longer the same."""
        now, name = measured(self.connection, self.options.name), self.options.name
        if now.replicas != self.subject.replicas or now.plan.hash != self.subject.plan.hash:
            raise ClusterError(
                f"{name} was changed meanwhile (ready replicas: {self.subject.replicas}, now {now.replicas}; plan "
                f"{self.subject.plan.hash}, now {now.plan.hash}): measure it again"
            )
        return now


class _Job:
    """What one Job sends, and what comes of it."""

    def __init__(self, bench: Bench, name: str, targets: Sequence[Target], notes: list[str]) -> None:
        self._bench, self._name, self._targets, self.notes = bench, name, targets, notes
        self._seed = bench.seed
        self._runs: list[Run] = schedule(
            bench.load, targets=len(targets), rounds=bench.options.rounds, first_seed=bench.seed
        )
        bench.seed = (bench.seed + len(self._runs)) % SEEDS
        names = [target.name for target in targets]
        self.progress = Progress(sum(run.requests for run in self._runs), bench.options.rounds, names)
        self._restarts = bench.subject.restarts(bench.connection)

    def manifest(self, waits_seconds: int | None = None) -> dict[str, Any]:
        bench = self._bench
        return bench_job(
            bench.subject.template,
            name=self._name,
            namespace=bench.connection.namespace,
            service=bench.options.name,
            owner=owner_reference(bench.subject.raw),
            targets=self._targets,
            runs=self._runs,
            load=bench.load,
            ready_seconds=READY_SECONDS,
            image=bench.options.image,
            waits_seconds=waits_seconds,
        )

    def begun(self, waits_seconds: int) -> dict[str, Any]:
        """What a Job that waits is changed by when the twin is ready."""
        return begun(
            self._runs, targets=len(self._targets), ready_seconds=READY_SECONDS, waits_seconds=waits_seconds
        )  # fmt: skip

    def result(self, found: Followed, services: Sequence[Measured], change: Change | None = None) -> Result:
        """Writes it, too: before anything is removed, whatever comes of that."""
        bench, name = self._bench, self._bench.options.name
        notes, withheld = [*self.notes, *found.notes], None
        failed = found.error is not None or any(each.failures for each in found.rounds)
        try:
            found_changes = (each.changed(bench.connection) for each in services)
            changes = list(dict.fromkeys(why for why in found_changes if why is not None))
            if changes and len(self._targets) > 1:
                withheld = "; ".join(changes)
            notes += changes
            if restarted := bench.subject.restarted(bench.connection, self._restarts, RESTART_SECONDS if failed else 0):
                notes.append(f"containers of {name} were started anew {restarted} times meanwhile")
        except ClusterError as error:
            notes.append(f"whether pods were changed or started anew meanwhile is not known: {error}")
        names = [target.name for target in self._targets]
        result = Result(
            service=name,
            command=shlex.join(["kubectl", "vlm", *sys.argv[1:]]),
            load=bench.load,
            seed=self._seed,
            targets=tuple(names if change is None else [names[0], change.label]),
            rounds=tuple(found.rounds),
            planned=bench.subject.planned(),
            notes=tuple(notes),
            complete=found.complete,
            error=found.error,
            change=change,
            withheld=withheld,
        )
        bench.records.result(result)
        return result


@dataclass
class Followed:
    """What a Job has told until its end."""

    rounds: list[Round] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = False
    """True: every run came to its end."""
    error: str | None = None
    """What ended it early."""


def follow(job: LoadJob, progress: Progress, records: Records) -> Followed:
    """Raises ClusterError where it ended before anything was measured."""
    found = Followed()
    try:
        for event in job.events():
            records.event(job.name, event)
            if event["event"] == "ready":
                found.notes += [
                    f"{name} does not know ignore_eos, so its answers may be shorter" for name in event["plain"]
                ]
            elif event["event"] == "begin":
                progress.begin(event["round"], event["target"], event["concurrency"])
            elif event["event"] == "progress":
                progress.done(event["done"])
            elif event["event"] == "round":
                found.rounds.append(round_of(event))
                progress.end(found.rounds[-1])
            elif event["event"] == "failed":
                raise ClusterError(event["message"])
            elif event["event"] == "end":
                found.complete = bool(event["complete"])
    except ClusterError as error:
        if not any(each.counted for each in found.rounds):
            raise
        found.error = str(error)
    return found
