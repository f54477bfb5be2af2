"""Objects of somebody else that have a name which a service needs. They are left alone and told of. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vlm_api.names import KIND
from vlm_operator.controller import reasons
from vlm_operator.controller.observed import Problem
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import Applied, title
from vlm_operator.kube.ownership import whose


def problem_of(done: Applied, service: str) -> Problem | None:
    """What keeps the objects of the VLMService of that name from being made."""
    if done.taken:
        return Problem(reasons.NAME_TAKEN, _told(done.taken, service))
    if kinds.LEADER_WORKER_SET.kind in done.absent:
        return Problem(reasons.KIND_MISSING, "the cluster has no LeaderWorkerSet: install its controller")
    return None


def service_in_the_way(group: Mapping[str, Any] | None, services: Sequence[Mapping[str, Any]]) -> Problem | None:
    """What keeps the pods of a live LeaderWorkerSet from finding each other: a Service of its name that came at the same
    moment, which its controller takes for the one that it would make. ``services`` are those of another VLMService."""
    if group is None or group["kind"] != kinds.LEADER_WORKER_SET.kind:
        return None
    name = group["metadata"]["name"]
    for found in services:
        owner = whose(found)
        if found["metadata"]["name"] == name and owner != (kinds.LEADER_WORKER_SET.kind, name):
            return Problem(
                reasons.NAME_TAKEN,
                f"{title(found)} exists and belongs to {_words(owner)}, so the pods of {title(group)} cannot find each other: "
                "give one of the two services another name",
            )
    return None


def _told(taken: Mapping[str, tuple[str, str] | None], service: str) -> str:
    before = [name for name, owner in taken.items() if owner == (KIND, service)]
    others = [f"{name} exists and belongs to {_words(owner)}" for name, owner in taken.items() if name not in before]
    if others:
        # A controller would make its own anew, maybe after ours has taken the name.
        it = "it" if all(taken[name] is None for name in taken if name not in before) else "what it belongs to"
        return f"{', '.join(others)}: delete {it}, or give the service another name"
    return (
        f"{', '.join(before)} still belong{'s' if len(before) == 1 else ''} to a VLMService of this name that was deleted: made "
        "anew as soon as the garbage collector has removed what is left of it"
    )


def _words(owner: tuple[str, str] | None) -> str:
    return "somebody else" if owner is None else "/".join(owner)
