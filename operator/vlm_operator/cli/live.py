"""``kubectl vlm explain`` and ``kubectl vlm status``: a VLMService in the cluster, from its status and its pods."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from vlm_api.problems import problems
from vlm_api.status import Effective, ImagesInTraffic, PlanStatus, VLMService, VLMServiceStatus
from vlm_operator.cli.cluster import connect
from vlm_operator.cli.console import INDENT, heading, make_console, mib, pairs, shown
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.health import print_status
from vlm_operator.cli.table import EngineSays, print_findings, print_plan
from vlm_operator.documents import Document


def explain(options: argparse.Namespace) -> int:
    """Every setting of the plan in force, beside what the running engine says it uses."""
    raw = connect(options).service(options.name)
    service, status = read(raw)
    if status is None or status.plan is None or status.plan.engine is None:
        raise ClusterError(f"{options.name} has no plan yet: `kubectl vlm status {options.name}` says what is missing")
    console = make_console()
    print_plan(console, service, status.plan, None if status.effective is None else _engine_says(status.effective))
    images = status.effective.images if status.effective is not None else None
    if images is not None:
        _print_images(console, images)
    _print_effective(console, status.effective, status.plan)
    return 0


def status(options: argparse.Namespace) -> int:
    """Conditions, start-up, pods and the next step."""
    connection = connect(options)
    raw = connection.service(options.name)
    service, found = read(raw)
    print_status(make_console(), service, found, connection.pods(options.name), datetime.now(timezone.utc))
    return 0


def read(raw: Document) -> tuple[VLMService, VLMServiceStatus | None]:
    """The service and its status. Fields of the status that a newer operator has added are passed over.

    Raises ClusterError for a spec that this version does not understand.
    """
    try:
        service = VLMService.model_validate({k: v for k, v in raw.items() if k != "status"})
        status = VLMServiceStatus.model_validate(raw["status"], extra="ignore") if raw.get("status") else None
    except ValidationError as error:
        said = "; ".join(str(p) for p in problems(error, VLMService))
        raise ClusterError(
            f"{raw['metadata']['name']} cannot be read: {said}; is kubectl-vlm as new as the operator?"
        ) from error
    return service, status


def _engine_says(effective: Effective) -> EngineSays:
    instead = {str(entry["name"]): entry.get("effective") for entry in (*effective.settings, *effective.left_alone)}
    return EngineSays(instead, frozenset(effective.not_told))


def _print_images(console: Console, images: ImagesInTraffic) -> None:
    """What the traffic says of ``workload.images.reuse``."""
    console.print(heading("Images in the traffic of about an hour"))
    shares = [("declared", images.declared), ("came back", f"about {images.repeated_percent} %")]
    console.print(pairs([*shares]))
    if images.finding is not None:
        print_findings(console, [images.finding])


def _print_effective(console: Console, effective: Effective | None, plan: PlanStatus) -> None:
    """Whether what was planned is in force, last, where the eye is."""
    if effective is not None:
        _print_pool(console, effective.feature_pool_mib, plan)
    console.print()
    if effective is None:
        console.print(Text("No running engine has been asked yet, so these are the planned values.", style="yellow"))
        return
    for entry in effective.left_alone:
        told = f"{entry['name']}: expected {shown(entry.get('expected'))}, the engine chose {shown(entry.get('effective'))}"
        console.print(Text(f"Left to the engine in pod {effective.pod}: {told}", style="yellow"))
    if effective.not_told:
        console.print(Text(f"Not told by the engine: {', '.join(effective.not_told)}", style="dim"))
    if effective.agrees:
        told = " that it tells" if effective.not_told else ""
        console.print(Text(f"The engine in pod {effective.pod} uses every planned value{told}.", style="green"))
        return
    console.print(Text(f"The engine in pod {effective.pod} uses other values than planned:", style="bold red"))
    for entry in effective.settings:
        values = f"planned {shown(entry.get('planned'))}, in force {shown(entry.get('effective'))}"
        console.print(f"{INDENT}{entry['name']}: {values}")


def _print_pool(console: Console, true_mib: int | None, plan: PlanStatus) -> None:
    planned = plan.memory.feature_pool_mib if plan.memory is not None else None
    if planned is not None or true_mib is not None:
        rows = [("planned", mib(planned) if planned is not None else "none"), ("in force", mib(true_mib))]
        console.print(heading("Room for image features on the GPU"))
        console.print(pairs([*rows]))
