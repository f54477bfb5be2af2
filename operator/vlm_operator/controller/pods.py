"""What a pod's status says, in the few words that matter here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from vlm_api.names import INSTALL_CONTAINER, LABEL_PLAN, MAIN_CONTAINER
from vlm_api.reasons import FAILURES
from vlm_api.report import Failure
from vlm_operator.controller import reasons
from vlm_operator.render.workload import LWS_WORKER_INDEX

# Why a container cannot start, as the kubelet says it. CrashLoopBackOff only repeats what the last end says better.
CANNOT_START: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
# Each try of a pull has both of them in turn, which would be two Events and two writes of the status every time.
_PULL_FAILED: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*": ErrImagePull: ')
# The port that a connection was tried from, another one each time.
_TRIED_FROM: Final = re.compile(r"[0-9a-fA-F.:\[\]]+:[0-9]+->")


@dataclass(frozen=True)
class PodView:
    """One pod of the service."""

    name: str
    uid: str
    plan_hash: str
    node: str | None
    """The node that it was scheduled to."""
    address: str | None
    ready: bool
    running: bool
    """Whether the engine's container runs at this moment."""
    restarts: int
    leader: bool
    """False for the followers of a group, which answer no requests."""
    deleting: bool
    unschedulable: str | None
    """The scheduler's own words, where it finds no node."""
    failure: Failure | None
    """Why it is not serving, where it ended or cannot start."""
    scheduled_at: str | None = None
    """When it was given its node, in RFC 3339."""
    started_at: str | None = None
    """When the engine's container began to run, in RFC 3339; None while it does not."""

    @property
    def pulling(self) -> bool:
        """Whether its first container is still waited for: images are pulled, volumes mounted."""
        here = self.scheduled_at is not None and not self.running and not self.restarts
        return here and not self.ready and not self.deleting and self.failure is None

    @property
    def mismatch(self) -> bool:
        """Whether the runtime found less hardware than planned."""
        return self.failure is not None and self.failure.reason == "HardwareMismatch"


def view(pod: Mapping[str, Any]) -> PodView:
    """A core/v1 Pod in few words. No text that a container wrote to its log is taken over, since it may hold secrets."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    main = _container(status.get("containerStatuses"), MAIN_CONTAINER)
    ready = (conditions.get("Ready") or {}).get("status") == "True"
    scheduled = conditions.get("PodScheduled") or {}
    name = str(metadata["name"])
    return PodView(
        name=name,
        uid=str(metadata.get("uid") or ""),
        plan_hash=str((metadata.get("labels") or {}).get(LABEL_PLAN) or ""),
        node=(pod.get("spec") or {}).get("nodeName"),
        address=status.get("podIP"),
        ready=ready,
        running="running" in (main.get("state") or {}),
        restarts=int(main.get("restartCount") or 0),
        leader=(metadata.get("labels") or {}).get(LWS_WORKER_INDEX, "0") == "0",
        deleting=bool(metadata.get("deletionTimestamp")),
        unschedulable=str(scheduled.get("message") or "the scheduler gave no reason")
        if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
        else None,
        failure=None if ready else _failure(name, status, main),
        scheduled_at=scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None,
        started_at=((main.get("state") or {}).get("running") or {}).get("startedAt"),
    )


def _failure(name: str, status: Mapping[str, Any], main: Mapping[str, Any]) -> Failure | None:
    if status.get("phase") == "Failed" and status.get("reason"):
        said = status.get("message") or "no message"
        return Failure(reason=reasons.EVICTED, message=f"pod {name}: {status['reason']}: {said}"[:2048])
    install = _container(status.get("initContainerStatuses"), INSTALL_CONTAINER)
    others = [
        s
        for s in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or []))
        if s.get("name") not in (INSTALL_CONTAINER, MAIN_CONTAINER)
    ]
    for container, status_of in (
        (INSTALL_CONTAINER, install),
        (MAIN_CONTAINER, main),
        *((str(s.get("name")), s) for s in others),
    ):
        waiting = (status_of.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in CANNOT_START:
            reason, said = str(waiting["reason"]), str(waiting.get("message") or waiting["reason"])
            if reason in _PULL_FAILED:
                reason, said = "ImagePullBackOff", _TRIED_FROM.sub("", _BACK_OFF.sub("", said))
            return Failure(reason=reason, message=f"pod {name}, container {container}: {said}"[:2048])
    if ended := _ended(install):
        return Failure(
            reason=reasons.INSTALL_FAILED,
            message=f"pod {name}: the runtime could not be installed (exit code {ended.get('exitCode')}): "
            f"see kubectl logs {name} -c {INSTALL_CONTAINER}",
        )
    if ended := _ended(main):
        return _said(ended) or _unsaid(name, MAIN_CONTAINER, ended)
    for other in others:
        # One of the user's that ended once and runs again is not what the pod waits for.
        if "running" not in (other.get("state") or {}) and (ended := _ended(other)):
            return _unsaid(name, str(other.get("name")), ended)
    return None


def _ended(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """How a container ended the last time, where that was not as it should."""
    for state in (status.get("state"), status.get("lastState")):
        ended: Mapping[str, Any] = (state or {}).get("terminated") or {}
        if ended:
            # One that is through with its work has failed before at most.
            return ended if ended.get("exitCode") else {}
    return {}


def _said(ended: Mapping[str, Any]) -> Failure | None:
    """What the runtime wrote as its last words."""
    try:
        return Failure.model_validate(json.loads(ended.get("message") or ""), extra="ignore")
    except (ValueError, ValidationError):
        return None


def _unsaid(name: str, container: str, ended: Mapping[str, Any]) -> Failure:
    if ended.get("reason") == "OOMKilled" and container == MAIN_CONTAINER:
        return Failure(reason="OutOfHostMemory", message=FAILURES["OutOfHostMemory"])
    how = f"exit code {ended.get('exitCode')}" + (f", {ended['reason']}" if ended.get("reason") else "")
    return Failure(
        reason=reasons.CONTAINER_ENDED,
        message=f"pod {name}: container {container} ended ({how}): see kubectl logs {name} -c {container} --previous",
    )


def _container(statuses: Any, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((s for s in statuses or [] if s.get("name") == name), {})
    return found
