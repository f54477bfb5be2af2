"""Which Events a change of status is worth. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from vlm_api import reasons
from vlm_api.plan import Finding, Severity
from vlm_api.reasons import Conditions
from vlm_api.status import Condition, VLMServiceStatus
from vlm_operator.controller.status.observation import FALSE, TRUE

NORMAL, WARNING = "Normal", "Warning"
# Reasons for a service not to be Ready that nobody has to act on.
_EXPECTED = frozenset({reasons.STARTING, reasons.INSPECTING, reasons.SUSPENDED, reasons.SCALED_TO_ZERO})


class Event(NamedTuple):
    """What an Event says: its type (Normal or Warning), reason and note."""

    kind: str
    reason: str
    note: str


def events_for(previous: VLMServiceStatus | None, status: VLMServiceStatus) -> Iterator[Event]:
    """One Event for each thing that has changed: plan, Ready, the model's files, settings, traffic and hardware."""
    before = previous.plan.hash if previous and previous.plan else ""
    after = status.plan.hash if status.plan else ""
    refused = any(f.severity is Severity.ERROR for f in (status.plan.findings if status.plan else []))
    if before and after and before != after and not refused:
        yield Event(NORMAL, reasons.PLAN_CHANGED, f"plan {after} replaces {before}: pods are being replaced")
    was, ready = _find(previous, Conditions.READY), _find(status, Conditions.READY)
    if ready is not None and (was is None or (was.status, was.reason) != (ready.status, ready.reason)):
        calm = ready.status is TRUE or ready.reason in _EXPECTED
        yield Event(NORMAL if calm else WARNING, ready.reason, ready.message)
    unread = status.model.failure if status.model else None
    told = unread is not None and ready is not None and ready.reason == unread.reason
    if unread is not None and not told and (previous is None or previous.model != status.model):
        yield Event(WARNING, unread.reason, unread.message)
    effective = _find(status, Conditions.OVERRIDES_EFFECTIVE)
    if effective is not None and _has_turned(previous, effective):
        if effective.status is TRUE:
            yield Event(NORMAL, effective.reason, effective.message)
        # Ready may have reported it already.
        elif effective.status is FALSE and (ready is None or ready.reason != effective.reason):
            yield Event(WARNING, effective.reason, effective.message)
    traffic, traffic_before = _traffic_finding(status), _traffic_finding(previous)
    if traffic is not None and (traffic_before is None or traffic_before.reason != traffic.reason):
        yield Event(WARNING if traffic.severity is Severity.WARNING else NORMAL, traffic.reason, traffic.message)
    drift = _find(status, Conditions.HARDWARE_DRIFT)
    if drift is not None and drift.status is TRUE and _has_turned(previous, drift):
        yield Event(WARNING, drift.reason, drift.message)


def _has_turned(previous: VLMServiceStatus | None, now: Condition) -> bool:
    """Whether a condition has another status than before, or another reason to be False."""
    was = _find(previous, now.type)
    return was is None or was.status != now.status or (now.status is FALSE and was.reason != now.reason)


def _traffic_finding(status: VLMServiceStatus | None) -> Finding | None:
    images = status.effective.images if status is not None and status.effective is not None else None
    return images.finding if images is not None else None


def _find(status: VLMServiceStatus | None, name: str) -> Condition | None:
    return next((c for c in status.conditions if c.type == name), None) if status else None
