"""Objects of somebody else that bear a name which a service needs. They are left alone and reported. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from vlm_api import reasons
from vlm_api.names import KIND
from vlm_operator.controller.status.observation import Problem
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import Applied, title
from vlm_operator.kube.ownership import controller_of


def problem_of(applied: Applied, service: str) -> Problem | None:
    """What keeps the objects of the VLMService of that name from being created."""
    if applied.taken:
        return Problem(reasons.NAME_TAKEN, _message(applied.taken, service))
    if applied.deleting:
        return Problem(
            reasons.NOT_APPLIED,
            f"{', '.join(applied.deleting)} is being deleted and is created again afterwards: if that takes more than a few "
            "minutes, look at metadata.finalizers and at the controllers that remove them",
        )
    if kinds.LEADER_WORKER_SET.kind in applied.absent:
        message = "the cluster does not serve LeaderWorkerSet: install the LeaderWorkerSet controller"
        return Problem(reasons.KIND_MISSING, message)
    return None


def hidden_group(workload: Mapping[str, Any] | None, namesakes: Sequence[Mapping[str, Any]]) -> Problem | None:
    """Why the pods of a live LeaderWorkerSet cannot find each other: a Service of its name, created at the same moment, which
    its controller takes for its own. ``namesakes`` are Services of another VLMService."""
    if workload is None or workload["kind"] != kinds.LEADER_WORKER_SET.kind:
        return None
    name = workload["metadata"]["name"]
    for service in namesakes:
        owner = controller_of(service)
        if service["metadata"]["name"] == name and owner != (kinds.LEADER_WORKER_SET.kind, name):
            return Problem(
                reasons.NAME_TAKEN,
                f"{title(service)} exists and belongs to {_named(owner)}, so the pods of {title(workload)} cannot find each "
                "other: rename one of the two VLMServices",
            )
    return None


def _message(taken: Mapping[str, tuple[str, str] | None], service: str) -> str:
    leftovers = [name for name, owner in taken.items() if owner == (KIND, service)]
    others = {name: owner for name, owner in taken.items() if name not in leftovers}
    if others:
        exist = ", ".join(f"{name} exists and belongs to {_named(owner)}" for name, owner in others.items())
        # A controller would create its own again, maybe after ours has taken the name.
        what = "it" if all(owner is None for owner in others.values()) else "its owner"
        return f"{exist}: delete {what}, or rename the VLMService"
    return (
        f"{', '.join(leftovers)} still belong{'s' if len(leftovers) == 1 else ''} to a deleted VLMService of this name: wait for "
        "the garbage collector to remove it; the service starts afterwards"
    )


def _named(owner: tuple[str, str] | None) -> str:
    return "somebody else" if owner is None else "/".join(owner)
