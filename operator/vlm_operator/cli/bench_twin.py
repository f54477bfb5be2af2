"""The twin before it is made, and while it starts: whether it can run, and whether it may be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from vlm_api.plan import ServingPlan
from vlm_api.status import PlanStatus, VLMService
from vlm_operator.cli.bench_targets import Measured
from vlm_operator.cli.cluster import Connection
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.load_job import wait_until_ready
from vlm_operator.cli.plan import cluster_of
from vlm_operator.measure.target import Target, certificate_of, service_url
from vlm_operator.measure.twin import Change, twin_manifest, twin_name
from vlm_operator.measure.twin_plan import Contrast, contrast, no_room, refusal
from vlm_operator.planning import Cluster, make_plan
from vlm_operator.render.names import Manifest


@dataclass(frozen=True)
class Prepared:
    """A twin that may be made."""

    name: str
    target: Target
    contrast: Contrast
    """As it was planned here. The operator may know more: measured sets of its own, how the network is closed."""
    subject: Measured
    change: Change | None
    replicas: int

    def manifest(self, owner: Mapping[str, Any]) -> Manifest:
        """The twin as it is sent to the cluster."""
        return twin_manifest(
            self.subject.raw, self.change, name=self.name, owner=owner, replicas=self.replicas, plan=self.subject.plan
        )  # fmt: skip


def twin_target(
    connection: Connection, subject: Measured, change: Change | None, *, suffix: str, label: str = "", replicas: int = 1
) -> Prepared:
    """Plans the twin as the operator will. Raises ClusterError with the reason where it cannot run now, or would not differ,
    and InvalidInput where the changed spec is wrong."""
    name = twin_name(subject.service.name, suffix)
    draft = Prepared(name, subject.target, Contrast(change, (), None), subject, change, replicas)
    service = VLMService.model_validate(draft.manifest({}))
    cluster = cluster_of(service, connection.objects())
    plan = _planned(service, cluster, subject)
    found = contrast(subject.plan, _in_force(plan), change)
    label = found.change.label if found.change is not None else label
    why = refusal(plan) or no_room(plan, _free(plan, cluster), replicas)
    if why is None and found.refusal and _as_the_operator_plans(subject, cluster):
        why = found.refusal
    if why is not None:
        raise ClusterError(f"no twin {label} can run now: {why}")
    told = {s.name for s in plan.settings if s.applied} | {*subject.target.settings}
    certificate = certificate_of(plan.engine.args)
    target = replace(
        subject.target,
        name=label,
        url=service_url(name, connection.namespace, certificate),
        pods=(),
        settings=tuple(sorted(told)),
        certificate=certificate,
    )
    return replace(draft, target=target, contrast=found)


def start(connection: Connection, prepared: Prepared, seconds: float, say: Callable[[str], None]) -> Contrast:
    """Waits until the twin is ready, and holds the plan that it really got against the service's.

    Raises ClusterError where it cannot become ready and, as soon as its plan is there, where the two must not be compared.
    """
    found = prepared.contrast

    def look(status: Mapping[str, Any]) -> None:
        nonlocal found
        if not (status.get("plan") or {}).get("hash"):
            return
        try:
            plan = PlanStatus.model_validate(status["plan"], extra="ignore")
        except ValidationError as error:
            raise ClusterError(
                f"the plan of {prepared.name} cannot be read: is kubectl-vlm as new as the operator?"
            ) from error
        found = contrast(prepared.subject.plan, plan, prepared.change)
        if found.refusal is not None:
            raise ClusterError(f"the twin {prepared.target.name} is not measured: {found.refusal}")

    for reason in wait_until_ready(connection, prepared.name, seconds, replicas=prepared.replicas, look=look):
        say(f"{prepared.name}: {reason}")
    return found


def _planned(service: VLMService, cluster: Cluster, subject: Measured) -> ServingPlan:
    return make_plan(service, cluster, runtime_image="", inspected=subject.inspected)


def _in_force(plan: ServingPlan) -> PlanStatus:
    return PlanStatus(engine=plan.engine, hardware=plan.hardware, settings=plan.settings)


def _free(plan: ServingPlan, cluster: Cluster) -> list[int]:
    """Devices that nobody has asked for, on each node of the plan."""
    names = {*plan.hardware.nodes}
    return [
        max(node.gpu.allocatable - cluster.in_use.get(node.name, 0), 0)
        for node in cluster.nodes
        if node.gpu is not None and node.name in names
    ]


def _as_the_operator_plans(subject: Measured, cluster: Cluster) -> bool:
    """Whether what is planned here is what the operator plans: else its own plan decides."""
    unchanged = twin_manifest(subject.raw, None, name=subject.service.name, owner={}, plan=subject.plan)
    plan = _in_force(_planned(VLMService.model_validate(unchanged), cluster, subject))
    found = contrast(subject.plan, plan, None)
    return not found.others and found.refusal is None
