"""``kubectl vlm explain`` and ``kubectl vlm status``: a VLMService in the cluster, from its status and its pods."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from vlm_api.problems import problems
from vlm_api.report import EffectiveSetting
from vlm_api.status import Effective, VLMService, VLMServiceStatus
from vlm_operator.cli.cluster import connect
from vlm_operator.cli.console import INDENT, make_console
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.health import print_status
from vlm_operator.cli.table import print_plan
from vlm_operator.documents import Document


def explain(options: argparse.Namespace) -> int:
    """Every setting of the plan in force, beside what the running engine says it uses."""
    raw = connect(options).service(options.name)
    service, status = read(raw)
    if status is None or status.plan is None or status.plan.engine is None:
        raise ClusterError(f"{options.name} has no plan yet: `kubectl vlm status {options.name}` says what is missing")
    console = make_console()
    differing = None if status.effective is None else _differing(status.effective)
    print_plan(console, service, status.plan, differing)
    _print_effective(console, status.effective)
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


def _differing(effective: Effective) -> dict[str, EffectiveSetting]:
    found = [EffectiveSetting.model_validate({**entry, "agrees": False}) for entry in effective.settings]
    return {setting.name: setting for setting in found}


def _print_effective(console: Console, effective: Effective | None) -> None:
    """Whether what was planned is in force, last, where the eye is."""
    console.print()
    if effective is None:
        console.print(Text("No running engine has been asked yet, so these are the planned values.", style="yellow"))
    elif effective.agrees:
        console.print(Text(f"The engine in pod {effective.pod} uses every planned value.", style="green"))
    else:
        console.print(Text(f"The engine in pod {effective.pod} uses other values than planned:", style="bold red"))
        for setting in _differing(effective).values():
            console.print(f"{INDENT}{setting.name}: planned {setting.planned}, in force {setting.effective}")
