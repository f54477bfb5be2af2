"""The few facts of a pod's status that matter here. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from vlm_api import reasons
from vlm_api.names import INSTALL_CONTAINER, LABEL_PLAN, LWS_WORKER_INDEX, MAIN_CONTAINER
from vlm_api.reasons import FAILURES
from vlm_api.report import Failure

# Why a container cannot start, in the kubelet's words. CrashLoopBackOff only repeats how the container ended before.
CANNOT_START: Final = frozenset(
    {
        "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull",
        "ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RunContainerError",
    }
)  # fmt: skip
# The kubelet alternates between them, which would be two Events and two status writes for each attempt.
_PULL_FAILED: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*": ErrImagePull: ')
# The local port of a connection, another one for each attempt.
_LOCAL_PORT: Final = re.compile(r"[0-9a-fA-F.:\[\]]+:[0-9]+->")


@dataclass(frozen=True)
class PodView:
    """One pod of the service."""

    name: str
    uid: str
    plan_hash: str
    node: str | None
    """The node that it is scheduled to."""
    address: str | None
    ready: bool
    running: bool
    """Whether the engine's container runs now."""
    restarts: int
    leader: bool
    """False for a group's workers, which answer no requests."""
    deleting: bool
    unschedulable: str | None
    """The scheduler's message, if it finds no node."""
    failure: Failure | None
    """Why it does not serve, if it ended or cannot start."""
    scheduled_at: str | None = None
    """When it was scheduled, in RFC 3339."""
    started_at: str | None = None
    """When the engine's container started, in RFC 3339; None while it does not run."""

    @property
    def pulling(self) -> bool:
        """Whether it waits for its first container: images are being pulled, volumes mounted."""
        here = self.scheduled_at is not None and not self.running and not self.restarts
        return here and not self.ready and not self.deleting and self.failure is None

    @property
    def mismatch(self) -> bool:
        """Whether the runtime found less hardware than planned."""
        return self.failure is not None and self.failure.reason == "HardwareMismatch"


def view(pod: Mapping[str, Any]) -> PodView:
    """The facts of a core/v1 Pod. Nothing that a container wrote to its log is among them: it may hold secrets."""
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
        unschedulable=str(scheduled.get("message") or "the scheduler gives no reason")
        if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
        else None,
        failure=None if ready else _failure(name, status, main),
        scheduled_at=scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None,
        started_at=((main.get("state") or {}).get("running") or {}).get("startedAt"),
    )


def _failure(name: str, status: Mapping[str, Any], main: Mapping[str, Any]) -> Failure | None:
    if status.get("phase") == "Failed" and status.get("reason"):
        message = status.get("message") or "no message"
        return Failure(reason=reasons.EVICTED, message=f"pod {name}: {status['reason']}: {message}"[:2048])
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
            reason, message = str(waiting["reason"]), str(waiting.get("message") or waiting["reason"])
            if reason in _PULL_FAILED:
                reason, message = "ImagePullBackOff", _LOCAL_PORT.sub("", _BACK_OFF.sub("", message))
            return Failure(reason=reason, message=f"pod {name}, container {container}: {message}"[:2048])
    if ended := _ended(install):
        return Failure(
            reason=reasons.INSTALL_FAILED,
            message=f"pod {name}: the runtime could not be installed (exit code {ended.get('exitCode')}): "
            f"see kubectl logs {name} -c {INSTALL_CONTAINER}",
        )
    if ended := _ended(main):
        return _reported(ended) or _unreported(name, MAIN_CONTAINER, ended)
    for other in others:
        # A container of the user's that has restarted and runs does not hold the pod up.
        if "running" not in (other.get("state") or {}) and (ended := _ended(other)):
            return _unreported(name, str(other.get("name")), ended)
    return None


def _ended(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """How a container ended the last time; empty if it succeeded or never ended."""
    for state in (status.get("state"), status.get("lastState")):
        ended: Mapping[str, Any] = (state or {}).get("terminated") or {}
        if ended:
            return ended if ended.get("exitCode") else {}
    return {}


def _reported(ended: Mapping[str, Any]) -> Failure | None:
    """The failure that the runtime wrote into the termination message."""
    try:
        return Failure.model_validate(json.loads(ended.get("message") or ""), extra="ignore")
    except (ValueError, ValidationError):
        return None


def _unreported(name: str, container: str, ended: Mapping[str, Any]) -> Failure:
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


def seconds_between(earlier: str, later: str) -> float:
    """Seconds between two RFC 3339 times, never below zero: the nodes' clocks may differ."""
    first, second = (datetime.fromisoformat(time.replace("Z", "+00:00")) for time in (earlier, later))
    return max((second - first).total_seconds(), 0.0)
