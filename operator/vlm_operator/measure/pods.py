"""Why a pod that should run does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CANNOT_START: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


def started(pod: Mapping[str, Any]) -> bool:
    """Whether its container runs or has run."""
    return any("waiting" not in _state(each) and _state(each) for each in _containers(pod))


def ended(pod: Mapping[str, Any]) -> bool:
    """Whether it will print nothing more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def obstacle(pod: Mapping[str, Any]) -> str | None:
    """What keeps the pod from starting, in the cluster's words; None where nothing does that a person must mend."""
    for each in (pod.get("status") or {}).get("conditions") or []:
        if each.get("type") == "PodScheduled" and each.get("reason") == "Unschedulable":
            return f"no node takes it: {each.get('message') or 'the scheduler gives no reason'}"
    for each in _containers(pod):
        waiting = _state(each).get("waiting") or {}
        if waiting.get("reason") in CANNOT_START:
            return f"{waiting['reason']}: {waiting.get('message') or 'no message'}"
    return None


def last_words(pod: Mapping[str, Any]) -> str:
    """How its container ended: the end of what it printed, or the code."""
    for each in _containers(pod):
        if end := _state(each).get("terminated"):
            lines = str(end.get("message") or "").strip().splitlines()
            return lines[-1][:300] if lines else f"{end.get('reason') or 'ended'}, exit code {end.get('exitCode')}"
    return str((pod.get("status") or {}).get("message") or "it left no word")


def restarts(pod: Mapping[str, Any]) -> int:
    """How often its containers were started anew."""
    return sum(int(each.get("restartCount") or 0) for each in _containers(pod))


def _containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or []
    return found


def _state(container: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = container.get("state") or {}
    return found
