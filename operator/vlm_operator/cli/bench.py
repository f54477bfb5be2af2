"""``kubectl vlm bench``: a VLMService under its declared workload, alone or beside another server."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import sys
from dataclasses import dataclass, field
from typing import Final

from vlm_operator.cli.bench_status import remember
from vlm_operator.cli.bench_tables import print_each, print_result
from vlm_operator.cli.bench_targets import Measured, against, measured
from vlm_operator.cli.bench_twin import twin_target
from vlm_operator.cli.cluster import Connection, connect
from vlm_operator.cli.console import make_console
from vlm_operator.cli.errors import ClusterError, InvalidInputs
from vlm_operator.cli.load_job import LoadJob, running, twin, wait_until_ready
from vlm_operator.cli.progress import Progress
from vlm_operator.cli.records import Records
from vlm_operator.cli.signals import ends_on_signals
from vlm_operator.errors import InvalidInput
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.measure.interval import FEWEST_PAIRS
from vlm_operator.measure.job import bench_job
from vlm_operator.measure.load import Load, load_of, waiting
from vlm_operator.measure.result import Result
from vlm_operator.measure.rounds import Round, round_of
from vlm_operator.measure.schedule import schedule
from vlm_operator.measure.target import Target
from vlm_operator.measure.twin import Change, each_change, parse_set, setting_change, twin_manifest, without_change

READY_SECONDS: Final = 60
# An engine that died is started anew some seconds after its last requests have failed.
RESTART_SECONDS: Final = 20


def bench(options: argparse.Namespace) -> int:
    """Measures, prints and saves. Exit code 1 where requests failed."""
    try:
        _check(options)
        connection = connect(options)
        subject = measured(connection, options.name)
        load, notes = load_of(
            subject.service,
            replicas=subject.replicas,
            concurrency=_levels(options.concurrency),
            requests=options.requests,
        )
        if said := waiting(load, subject.planned().get("max_running_requests"), subject.replicas):
            notes = [*notes, said]
        changes, passed = _changes(options, subject)
        with ends_on_signals(), Records.begin(options.folder, options.name) as records:
            results = []
            if not changes:
                targets = [subject.target]
                if options.against is not None:
                    other, more = against(connection, subject, options)
                    targets, notes = [*targets, other], [*notes, *more]
                results.append(_measure(options, connection, subject, load, targets, None, notes, records))
            for change in changes:
                try:
                    results.append(_measure(options, connection, subject, load, [], change, notes, records))
                except (ClusterError, InvalidInput) as error:
                    # One twin that cannot run, or cannot be, does not take the others with it.
                    if len(changes) == 1:
                        raise
                    print(f"note: {change.label}: {error}", file=sys.stderr)
                    passed.append(f"{change.label}: {error}")
            if not results:
                raise ClusterError("no twin could be measured")
            if why := remember(connection, subject, results[0]):
                print(f"note: {why}", file=sys.stderr)
    except InvalidInput as error:
        raise InvalidInputs([str(error)]) from error
    return _show(options, results, passed, records)


def _check(options: argparse.Namespace) -> None:
    if not 1 <= options.rounds <= 1000:
        raise InvalidInput(
            "--rounds", f"{options.rounds} is not between 1 and 1000: {FEWEST_PAIRS} or more say something"
        )
    compares = options.against or options.without or options.set or options.each
    if compares and options.rounds < FEWEST_PAIRS:
        raise InvalidInput(
            "--rounds", f"{options.rounds} rounds say nothing about a difference: give {FEWEST_PAIRS} or more"
        )
    if compares and options.rounds % 2:
        even = f"{options.rounds - 1} or {options.rounds + 1}" if options.rounds > FEWEST_PAIRS else FEWEST_PAIRS
        raise InvalidInput(
            "--rounds",
            f"of {options.rounds} one server would be measured first once more than the other, and they change places "
            f"every round: give an even number, {even}",
        )
    if options.seed is not None and not 0 <= options.seed < 2**31:
        raise InvalidInput("--seed", f"{options.seed} is not between 0 and 2147483647")
    if options.start_timeout < 1:
        raise InvalidInput("--start-timeout", f"{options.start_timeout} is not above 0: give seconds")
    for option in ("against_key", "against_model"):
        if getattr(options, option) and "://" not in (options.against or ""):
            flag = "--" + option.replace("_", "-")
            raise InvalidInput(flag, "belongs to a server that --against names by its URL")


def _levels(text: str | None) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text is not None else []
    except ValueError:
        raise InvalidInput("--concurrency", f"{text!r}: write whole numbers with commas, such as 1,8,64") from None


def _changes(options: argparse.Namespace, subject: Measured) -> tuple[list[Change], list[str]]:
    """What twins are wanted, and what --each leaves aside."""
    if options.without:
        return [without_change(subject.service, subject.plan, options.without)], []
    if options.set:
        return [setting_change(subject.service, subject.plan, *parse_set(options.set))], []
    if options.each:
        changes, passed = each_change(subject.service, subject.plan)
        if not changes:
            raise InvalidInput("--each", f"{options.name} has no setting that could be left out: {'; '.join(passed)}")
        return changes, passed
    return [], []


def _measure(
    options: argparse.Namespace,
    connection: Connection,
    subject: Measured,
    load: Load,
    targets: list[Target],
    change: Change | None,
    notes: list[str],
    records: Records,
) -> Result:
    """One Job: of the given targets, or of the service and its twin with that change."""
    name = f"{options.name}-bench-{secrets.token_hex(3)}"
    if change is not None:
        prepared = twin_target(connection, subject, change, suffix=name[-6:])
        targets, notes = [subject.target, prepared.target], [*notes, *prepared.notes]
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    runs = schedule(load, targets=len(targets), rounds=options.rounds, first_seed=seed)
    manifest = bench_job(
        subject.template,
        name=name,
        namespace=connection.namespace,
        service=options.name,
        owner=owner_reference(subject.raw),
        targets=targets,
        runs=runs,
        load=load,
        ready_seconds=options.start_timeout if change is not None else READY_SECONDS,
        image=options.image,
    )
    before = subject.restarts(connection)
    names = [target.name for target in targets]
    with (
        Progress(sum(run.requests for run in runs), options.rounds, names) as progress,
        running(connection, manifest) as job,
    ):
        if change is None:
            found = _follow(job, progress, records)
        else:
            twin_is = twin_manifest(subject.raw, change, name=prepared.name, owner=job.owner)
            with twin(connection, twin_is) as made:
                for reason in wait_until_ready(connection, made, options.start_timeout):
                    progress.say(f"{made}: {reason}")
                found = _follow(job, progress, records)
    notes = [*notes, *found.notes]
    failed = found.error is not None or any(each.failures for each in found.rounds)
    if restarted := subject.restarted(connection, before, RESTART_SECONDS if failed else 0):
        notes = [*notes, f"containers of {options.name} were started anew {restarted} times meanwhile"]
    result = Result(
        service=options.name,
        command=shlex.join(["kubectl", "vlm", *sys.argv[1:]]),
        load=load,
        seed=seed,
        targets=tuple(names),
        rounds=tuple(found.rounds),
        planned=subject.planned(),
        notes=tuple(notes),
        complete=found.complete,
        error=found.error,
        change=change,
    )
    records.result(result)
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


def _follow(job: LoadJob, progress: Progress, records: Records) -> Followed:
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


def _show(options: argparse.Namespace, results: list[Result], passed: list[str], records: Records) -> int:
    if options.output == "json":
        found = [result.to_json() for result in results]
        print(json.dumps(found if options.each else found[0], indent=2))
        for why in passed:
            print(f"note: not measured: {why}", file=sys.stderr)
    else:
        console = make_console()
        for result in results:
            print_result(console, result)
        if options.each:
            print_each(console, results, passed)
        console.print(f"\nSaved in {records.folder}: {', '.join(records.written)}")
    sound = True
    for result in results:
        if said := result.failure():
            print(f"error: {said}", file=sys.stderr)
            sound = False
    return 0 if sound else 1
