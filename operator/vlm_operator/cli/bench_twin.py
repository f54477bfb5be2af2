"""The twin before it is made: whether it can run now, and in what it will differ."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vlm_api.status import VLMService
from vlm_operator.cli.bench_targets import Measured
from vlm_operator.cli.cluster import Connection
from vlm_operator.cli.errors import ClusterError
from vlm_operator.cli.plan import cluster_of
from vlm_operator.measure.target import Target, service_url
from vlm_operator.measure.twin import Change, differences, refusal, twin_manifest, twin_name
from vlm_operator.planning import make_plan


@dataclass(frozen=True)
class Prepared:
    """A twin that may be made."""

    name: str
    target: Target
    notes: tuple[str, ...]


def twin_target(
    connection: Connection, subject: Measured, change: Change | None, *, suffix: str, label: str = ""
) -> Prepared:
    """Plans the twin as the operator will. Raises ClusterError with the reason where it cannot run now, InvalidInput
    where the changed spec is wrong."""
    name = twin_name(subject.service.name, suffix)
    service = VLMService.model_validate(twin_manifest(subject.raw, change, name=name, owner={}))
    plan = make_plan(service, cluster_of(service, connection.objects()), runtime_image="")
    if change is not None:
        label = change.label
    if why := refusal(plan):
        raise ClusterError(f"no twin {label} can run now: {why}")
    notes = []
    follows = [
        f"{setting}: {_shown(ours)} and {_shown(theirs)}"
        for setting, ours, theirs in differences(subject.plan.settings, plan.settings)
        if change is None or setting != change.name
    ]
    if follows:
        notes.append(f"from {label} follows, {subject.service.name} and its twin: {'; '.join(follows)}")
    target = replace(
        subject.target,
        name=label,
        url=service_url(name, connection.namespace),
        pods=(),
        settings=tuple(s.name for s in plan.settings if s.applied),
    )
    return Prepared(name, target, tuple(notes))


def _shown(value: object) -> str:
    return "the engine's own" if value is None else str(value)
