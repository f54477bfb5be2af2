"""A twin before it is created and while it starts: whether it can run, and whether it may be compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from vlm_api.plan import ServingPlan
from vlm_api.status import PlanStatus, VLMService
from vlm_bench.commands.load_job import wait_until_ready
from vlm_bench.commands.measured_service import MeasuredService
from vlm_bench.load.target import Target, certificate_of, service_url
from vlm_bench.twins.contrast import Contrast, contrast, no_room, refusal
from vlm_bench.twins.twin import Change, twin_manifest, twin_name
from vlm_operator.cli.cluster import Connection
from vlm_operator.cli.plan import cluster_of
from vlm_operator.errors import ClusterError
from vlm_operator.facts.types import Cluster
from vlm_operator.manifests.names import Manifest
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.request import requests_of


@dataclass(frozen=True)
class PreparedTwin:
    """A twin that can be created."""

    name: str
    target: Target
    contrast: Contrast
    """As planned here. The operator may plan otherwise: it knows the profiles and network policies of the installation."""
    subject: MeasuredService
    change: Change | None
    replicas: int

    def manifest(self, owner: Mapping[str, Any]) -> Manifest:
        """The twin for the cluster."""
        subject = self.subject
        return twin_manifest(
            subject.raw, self.change, name=self.name, owner=owner, replicas=self.replicas, plan=subject.plan
        )


def prepare_twin(
    connection: Connection,
    subject: MeasuredService,
    change: Change | None,
    *,
    suffix: str,
    label: str = "",
    replicas: int = 1,
) -> PreparedTwin:
    """Plans the twin as the operator will. Raises ClusterError with the reason if it cannot run now or would not differ, and
    InvalidInput if the changed spec is invalid."""
    name = twin_name(subject.service.name, suffix)
    draft = PreparedTwin(name, subject.target, Contrast(change, (), None), subject, change, replicas)
    service = VLMService.model_validate(draft.manifest({}))
    (request,) = requests_of(service)
    cluster = cluster_of(request, connection.objects())
    plan = _plan(service, cluster, subject)
    differences = contrast(subject.plan, _status_of(plan), change)
    label = differences.change.label if differences.change is not None else label
    why = refusal(plan) or no_room(plan, _free_devices(plan, cluster), replicas)
    # If the command plans otherwise than the operator, the operator's plan decides, once the twin exists.
    if why is None and differences.refusal and _plans_as_the_operator(subject, cluster):
        why = differences.refusal
    if why is not None:
        raise ClusterError(f"no twin {label} can run now: {why}")
    certificate = certificate_of(plan.engine.args)
    target = replace(
        subject.target,
        name=label,
        url=service_url(name, connection.namespace, certificate),
        pods=(),
        settings=tuple(sorted({s.name for s in plan.settings if s.applied} | {*subject.target.settings})),
        certificate=certificate,
    )
    return replace(draft, target=target, contrast=differences)


def wait_for_twin(
    connection: Connection, prepared: PreparedTwin, seconds: float, say: Callable[[str], None]
) -> Contrast:
    """Waits until the twin is ready; how its actual plan differs from the service's.

    Raises ClusterError if it cannot become ready and, as soon as it has a plan, if the two must not be compared.
    """
    differences = prepared.contrast

    def check(status: Mapping[str, Any]) -> None:
        nonlocal differences
        if not (status.get("plan") or {}).get("hash"):
            return
        try:
            plan = PlanStatus.model_validate(status["plan"], extra="ignore")
        except ValidationError as error:
            raise ClusterError(
                f"cannot read the plan of {prepared.name}: update kubectl-vlm if the operator is newer"
            ) from error
        differences = contrast(prepared.subject.plan, plan, prepared.change)
        if differences.refusal is not None:
            raise ClusterError(f"the twin {prepared.target.name} is not measured: {differences.refusal}")

    for reason in wait_until_ready(connection, prepared.name, seconds, replicas=prepared.replicas, check=check):
        say(f"{prepared.name}: {reason}")
    return differences


def _plan(service: VLMService, cluster: Cluster, subject: MeasuredService) -> ServingPlan:
    (request,) = requests_of(service)
    return make_plan(request, cluster, runtime_image="", inspected=subject.inspected)


def _status_of(plan: ServingPlan) -> PlanStatus:
    return PlanStatus(engine=plan.engine, hardware=plan.hardware, settings=plan.settings)


def _free_devices(plan: ServingPlan, cluster: Cluster) -> list[int]:
    """Unrequested devices on each node of the plan."""
    return [
        max(node.gpu.allocatable - cluster.in_use.get(node.name, 0), 0)
        for node in cluster.nodes
        if node.gpu is not None and node.name in plan.hardware.nodes
    ]


def _plans_as_the_operator(subject: MeasuredService, cluster: Cluster) -> bool:
    """Whether the command, given the unchanged service, makes the operator's plan."""
    unchanged = twin_manifest(subject.raw, None, name=subject.service.name, owner={}, plan=subject.plan)
    plan = _status_of(_plan(VLMService.model_validate(unchanged), cluster, subject))
    differences = contrast(subject.plan, plan, None)
    return not differences.others and differences.refusal is None
