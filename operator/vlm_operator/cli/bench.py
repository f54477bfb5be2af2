"""``kubectl vlm bench``: a VLMService under its declared workload, alone or beside another server."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence

from vlm_operator.cli.bench_arguments import START_TIMEOUT_SECONDS
from vlm_operator.cli.bench_measure import Bench
from vlm_operator.cli.bench_status import remember
from vlm_operator.cli.bench_tables import print_each, print_result
from vlm_operator.cli.bench_targets import Measured, against, measured
from vlm_operator.cli.cluster import connect
from vlm_operator.cli.console import make_console
from vlm_operator.cli.errors import ClusterError, InvalidInputs
from vlm_operator.cli.records import Records
from vlm_operator.cli.signals import ends_on_signals
from vlm_operator.errors import InvalidInput
from vlm_operator.measure.interval import FEWEST_PAIRS
from vlm_operator.measure.job import LONGEST_SECONDS
from vlm_operator.measure.load import load_of, waiting
from vlm_operator.measure.result import Result
from vlm_operator.measure.twin import Change, each_change, parse_set, setting_change, without_change


def bench(options: argparse.Namespace) -> int:
    """Measures, prints and saves. Exit code 1 where requests failed, or something could not be removed."""
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
        seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
        with ends_on_signals(), Records.begin(options.folder, options.name) as records:
            measuring = Bench(options, connection, subject, load, notes, records, seed)
            if changes:
                results = _beside_twins(measuring, changes, passed)
            else:
                other = against(connection, subject, options) if options.against is not None else None
                results = [measuring.beside(other)]
            if why := remember(connection, subject, results[0]):
                print(f"note: {why}", file=sys.stderr)
    except InvalidInput as error:
        raise InvalidInputs([str(error)]) from error
    return max(_show(options, results, passed, records), 1 if measuring.left else 0)


def _beside_twins(measuring: Bench, changes: Sequence[Change], passed: list[str]) -> list[Result]:
    """Raises ClusterError and InvalidInput where none could be measured."""
    results = []
    for change in changes:
        try:
            results.append(measuring.beside_twin(change))
        except (ClusterError, InvalidInput) as error:
            # One twin that cannot run, or cannot be, does not take the others with it.
            if len(changes) == 1:
                raise
            print(f"note: {change.label}: {error}", file=sys.stderr)
            passed.append(f"{change.label}: {error}")
    if not results:
        raise ClusterError("no twin could be measured")
    return results


def _check(options: argparse.Namespace) -> None:
    if not 1 <= options.rounds <= 1000:
        raise InvalidInput(
            "--rounds", f"{options.rounds} is not between 1 and 1000: {FEWEST_PAIRS} or more say something"
        )
    twins = options.without is not None or options.set is not None or options.each
    compares = options.against is not None or twins
    if options.against == "":
        raise InvalidInput("--against", "names nobody: give a VLMService, or the URL of a server")
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
    if options.start_timeout is not None and not twins:
        raise InvalidInput("--start-timeout", "belongs to a twin: --without, --set or --each makes one")
    if options.start_timeout is None:
        options.start_timeout = START_TIMEOUT_SECONDS
    if not 1 <= options.start_timeout <= LONGEST_SECONDS:
        raise InvalidInput(
            "--start-timeout", f"{options.start_timeout} is not between 1 and {LONGEST_SECONDS}: give seconds"
        )
    for option in ("against_key", "against_model"):
        if getattr(options, option) is not None and "://" not in (options.against or ""):
            flag = "--" + option.replace("_", "-")
            raise InvalidInput(flag, "belongs to a server that --against names by its URL")


def _levels(text: str | None) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text is not None else []
    except ValueError:
        raise InvalidInput("--concurrency", f"{text!r}: write whole numbers with commas, such as 1,8,64") from None


def _changes(options: argparse.Namespace, subject: Measured) -> tuple[list[Change], list[str]]:
    """What twins are wanted, and what --each leaves aside."""
    if options.without is not None:
        return [without_change(subject.service, subject.plan, options.without)], []
    if options.set is not None:
        return [setting_change(subject.service, subject.plan, *parse_set(options.set))], []
    if options.each:
        changes, passed = each_change(subject.service, subject.plan)
        if not changes:
            raise InvalidInput("--each", f"{options.name} has no setting that could be left out: {'; '.join(passed)}")
        return changes, passed
    return [], []


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
