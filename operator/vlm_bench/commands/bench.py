"""``kubectl vlm bench``: a VLMService under its declared workload, alone or beside another server."""

import argparse
import json
import secrets
import sys
from collections.abc import Sequence

from vlm_bench.commands.cleanup import ends_on_signals
from vlm_bench.commands.flags import START_TIMEOUT_SECONDS
from vlm_bench.commands.measured_service import MeasuredService, measured_service, other_server
from vlm_bench.commands.measurement import Measurement
from vlm_bench.commands.output import Folder, show
from vlm_bench.load.job_manifest import LONGEST_SECONDS
from vlm_bench.load.schedule import load_of, queueing_note
from vlm_bench.reports.bench_report import bench_report, settings_report
from vlm_bench.statistics.interval import FEWEST_PAIRS
from vlm_bench.statistics.result import Result
from vlm_bench.twins.twin import Change, each_change, parse_set, setting_change, without_change
from vlm_operator.cli.cluster import connect
from vlm_operator.cli.console import make_console
from vlm_operator.errors import ClusterError, InvalidInput, InvalidInputs


def bench(options: argparse.Namespace) -> int:
    """Measures, prints and saves. Exit code 1 if requests failed, or something could not be deleted."""
    try:
        _check(options)
        connection = connect(options)
        subject = measured_service(connection, options.name)
        load, notes = load_of(
            subject.service,
            replicas=subject.ready_replicas,
            concurrency=_levels(options.concurrency),
            requests=options.requests,
        )
        if note := queueing_note(load, subject.planned().get("max_running_requests"), subject.ready_replicas):
            notes.append(note)
        changes, passed = _changes(options, subject)
        seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
        with ends_on_signals(), Folder.create(options.folder, options.name) as folder:
            measurement = Measurement(options, connection, subject, load, notes, folder, seed)
            if changes:
                results = _with_twins(measurement, changes, passed)
            else:
                other = other_server(connection, subject, options) if options.against is not None else None
                results = [measurement.with_other(other)]
            if why := measurement.save_summary(results[0]):
                print(f"note: {why}", file=sys.stderr)
    except InvalidInput as error:
        raise InvalidInputs([str(error)]) from error
    return max(_show(options, results, passed, folder), 1 if measurement.left else 0)


def _with_twins(measurement: Measurement, changes: Sequence[Change], passed: list[str]) -> list[Result]:
    """Raises ClusterError and InvalidInput if no twin could be measured."""
    results = []
    for change in changes:
        try:
            results.append(measurement.with_twin(change))
        except (ClusterError, InvalidInput) as error:
            # With --each, a twin that cannot run does not end the measurement of the others.
            if len(changes) == 1:
                raise
            print(f"note: {change.label}: {error}", file=sys.stderr)
            passed.append(f"{change.label}: {error}")
    if not results:
        raise ClusterError("no twin could be measured: the notes above say why")
    return results


def _check(options: argparse.Namespace) -> None:
    rounds = options.rounds
    if not 1 <= rounds <= 1000:
        raise InvalidInput("--rounds", f"{rounds} is not between 1 and 1000: give {FEWEST_PAIRS} or more")
    twins = options.without is not None or options.set is not None or options.each
    compares = options.against is not None or twins
    if options.against == "":
        raise InvalidInput("--against", "is empty: give a VLMService, or the URL of a server")
    if compares and rounds < FEWEST_PAIRS:
        raise InvalidInput("--rounds", f"{rounds} rounds are too few to compare: give {FEWEST_PAIRS} or more")
    if compares and rounds % 2:
        even = f"{rounds - 1} or {rounds + 1}" if rounds > FEWEST_PAIRS else FEWEST_PAIRS
        raise InvalidInput(
            "--rounds",
            f"the servers change places every round, so with {rounds} one would be first more often: give an even number, {even}",
        )
    if options.seed is not None and not 0 <= options.seed < 2**31:
        raise InvalidInput("--seed", f"{options.seed} is not between 0 and 2147483647: choose another")
    if options.start_timeout is not None and not twins:
        raise InvalidInput("--start-timeout", "is for a twin: add --without, --set or --each, or leave it out")
    if options.start_timeout is None:
        options.start_timeout = START_TIMEOUT_SECONDS
    if not 1 <= options.start_timeout <= LONGEST_SECONDS:
        raise InvalidInput(
            "--start-timeout", f"{options.start_timeout} is not between 1 and {LONGEST_SECONDS}: give seconds"
        )
    for option in ("against_key", "against_model"):
        if getattr(options, option) is not None and "://" not in (options.against or ""):
            flag = "--" + option.replace("_", "-")
            raise InvalidInput(flag, "is for a server given by URL: give --against URL, or leave it out")


def _levels(text: str | None) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text is not None else []
    except ValueError:
        raise InvalidInput("--concurrency", f"{text!r}: write whole numbers with commas, such as 1,8,64") from None


def _changes(options: argparse.Namespace, subject: MeasuredService) -> tuple[list[Change], list[str]]:
    """The twins to measure, and why --each leaves out others."""
    if options.without is not None:
        return [without_change(subject.service, subject.plan, options.without)], []
    if options.set is not None:
        return [setting_change(subject.service, subject.plan, *parse_set(options.set))], []
    if options.each:
        changes, passed = each_change(subject.service, subject.plan)
        if not changes:
            raise InvalidInput("--each", f"{options.name} has no setting that can be left out: {'; '.join(passed)}")
        return changes, passed
    return [], []


def _show(options: argparse.Namespace, results: list[Result], passed: list[str], folder: Folder) -> int:
    if options.output == "json":
        documents = [result.to_json() for result in results]
        print(json.dumps(documents if options.each else documents[0], indent=2))
        for why in passed:
            print(f"note: not measured: {why}", file=sys.stderr)
    else:
        console = make_console()
        for result in results:
            show(console, bench_report(result))
        if options.each:
            show(console, settings_report(results, passed))
        console.print(f"\nSaved in {folder.path}: {', '.join(folder.written)}")
    failures = [failure for result in results if (failure := result.failure())]
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures else 0
