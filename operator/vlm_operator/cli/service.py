"""``kubectl vlm explain`` and ``kubectl vlm status``: a VLMService in the cluster."""

import argparse
from datetime import datetime, timezone

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from vlm_api.names import MAIN_POOL, PLAN_KEY
from vlm_api.plan import ServingPlan
from vlm_api.problems import problems
from vlm_api.status import Effective, ImagesInTraffic, PlanStatus, VLMService, VLMServiceStatus
from vlm_operator.cli.cluster import Connection, cluster_errors, connect
from vlm_operator.cli.console import INDENT, format_mib, format_value, heading, make_console, pairs
from vlm_operator.cli.plan import of_pool
from vlm_operator.cli.plan_table import InForce, print_findings, print_plan
from vlm_operator.cli.status_table import print_status
from vlm_operator.documents import Document
from vlm_operator.errors import ClusterError, InvalidInput, InvalidInputs
from vlm_operator.kube import kinds
from vlm_operator.kube.ownership import is_owned
from vlm_operator.manifests.names import plan_name
from vlm_operator.plan.request import PoolRequest, requests_of


def explain(options: argparse.Namespace) -> int:
    """Prints the current plan beside the values that the running engine reports."""
    connection = connect(options)
    raw = connection.service(options.name)
    service, status = read(raw)
    console, pool = make_console(), None
    if status is not None and service.spec.pools:
        request = _request(service, options.pool)
        shown, pool = shown_pool(service), request.pool
        service = of_pool(service, request)
        if pool != shown:
            print_plan(console, service, _stored(connection, status, request, raw["metadata"]["uid"]), pool=pool)
            console.print(f"\nValues in force are shown for pool {shown} only.")
            return 0
    elif options.pool not in (None, MAIN_POOL):
        raise InvalidInputs([f"--pool: {options.name} has no pools: leave it out"])
    if status is None or status.plan is None or status.plan.engine is None:
        raise ClusterError(f"{options.name} has no plan yet: see `kubectl vlm status {options.name}`")
    in_force = None if status.effective is None else _in_force(status.effective)
    print_plan(console, service, status.plan, in_force, pool=pool)
    images = status.effective.images if status.effective is not None else None
    if images is not None:
        _print_images(console, images)
    _print_effective(console, status.effective, status.plan)
    return 0


def shown_pool(service: VLMService) -> str:
    """The pool that the status shows in full: ``main``, else the first."""
    pools = [pool.name for pool in service.spec.pools]
    return MAIN_POOL if MAIN_POOL in pools or not pools else pools[0]


def _request(service: VLMService, pool: str | None) -> PoolRequest:
    """The pool of that name, by default the one that the status shows. Raises ClusterError and InvalidInputs."""
    try:
        requests = {request.pool: request for request in requests_of(service)}
    except InvalidInput as error:
        raise ClusterError(str(error)) from error
    wanted = shown_pool(service) if pool is None else pool
    if wanted not in requests:
        raise InvalidInputs([f"--pool: {service.name} has no pool {wanted}: choose one of {', '.join(requests)}"])
    return requests[wanted]


def _stored(connection: Connection, status: VLMServiceStatus, request: PoolRequest, uid: str) -> ServingPlan:
    """The plan of a pool, from the ConfigMap of the service with that uid. Raises ClusterError."""
    plan_hash = next((pool.plan for pool in status.pools if pool.name == request.pool), "")
    if not plan_hash:
        raise ClusterError(f"pool {request.pool} has no plan yet: see `kubectl vlm status {request.service}`")
    name = plan_name(request.service, plan_hash)
    with cluster_errors():
        config_map = connection.client.get(kinds.CONFIG_MAP, connection.namespace, name)
    if config_map is None:
        raise ClusterError(f"the ConfigMap {name} does not exist: a refused plan is shown by `kubectl vlm status`")
    if not is_owned(config_map, uid):
        raise ClusterError(
            f"the ConfigMap {name} is not {request.service}'s: delete it, and the operator creates its own"
        )
    try:
        return ServingPlan.model_validate_json(config_map["data"][PLAN_KEY], extra="ignore")
    except (KeyError, ValidationError) as error:
        raise ClusterError(f"cannot read the ConfigMap {name}: update kubectl-vlm if the operator is newer") from error


def status(options: argparse.Namespace) -> int:
    """Prints conditions, start-up, pods and the next step."""
    connection = connect(options)
    service, current = read(connection.service(options.name))
    print_status(make_console(), service, current, connection.pods(options.name), datetime.now(timezone.utc))
    return 0


def read(raw: Document) -> tuple[VLMService, VLMServiceStatus | None]:
    """The service and its status, without status fields of a newer operator.

    Raises ClusterError for a spec that this version does not understand.
    """
    try:
        service = VLMService.model_validate({k: v for k, v in raw.items() if k != "status"})
        status = VLMServiceStatus.model_validate(raw["status"], extra="ignore") if raw.get("status") else None
    except ValidationError as error:
        lines = "; ".join(str(p) for p in problems(error, VLMService))
        raise ClusterError(
            f"cannot read {raw['metadata']['name']}: {lines}; update kubectl-vlm if the operator is newer"
        ) from error
    return service, status


def _in_force(effective: Effective) -> InForce:
    different = {str(s["name"]): s.get("effective") for s in (*effective.settings, *effective.engine_defaults)}
    return InForce(different, frozenset(effective.not_reported))


def _print_images(console: Console, images: ImagesInTraffic) -> None:
    """Prints how often images repeat in the traffic."""
    console.print(heading("Images in the last hour"))
    shares = [("declared", images.declared), ("repeated", f"about {images.repeated_percent}%")]
    console.print(pairs([*shares]))
    if images.finding is not None:
        print_findings(console, [images.finding])


def _print_effective(console: Console, effective: Effective | None, plan: PlanStatus) -> None:
    """Prints whether the planned values are in force."""
    if effective is not None:
        _print_pool(console, effective.feature_pool_mib, plan)
    console.print()
    if effective is None:
        console.print(Text("No engine has reported yet: these are the planned values.", style="yellow"))
        return
    for entry in effective.engine_defaults:
        expected, chosen = format_value(entry.get("expected")), format_value(entry.get("effective"))
        choice = f"{entry['name']}: expected {expected}, the engine chose {chosen}"
        console.print(Text(f"Engine default in pod {effective.pod}: {choice}", style="yellow"))
    if effective.not_reported:
        console.print(Text(f"Not reported by the engine: {', '.join(effective.not_reported)}", style="dim"))
    if effective.agrees:
        what = "reported value matches" if effective.not_reported else "value matches"
        console.print(Text(f"Every {what} the plan (pod {effective.pod}).", style="green"))
        return
    console.print(Text(f"The engine in pod {effective.pod} uses different values than planned:", style="bold red"))
    for entry in effective.settings:
        values = f"planned {format_value(entry.get('planned'))}, in force {format_value(entry.get('effective'))}"
        console.print(f"{INDENT}{entry['name']}: {values}")


def _print_pool(console: Console, actual_mib: int | None, plan: PlanStatus) -> None:
    planned = plan.memory.feature_pool_mib if plan.memory is not None else None
    if planned is not None or actual_mib is not None:
        rows = [
            ("planned", format_mib(planned) if planned is not None else "none"),
            ("in force", format_mib(actual_mib)),
        ]
        console.print(heading("Feature pool"))
        console.print(pairs([*rows]))
