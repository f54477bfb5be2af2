"""The Job that reads a model's files: made once per model, watched until it answers, and removed when the status has it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from vlm_api.model import Inspection
from vlm_api.plan import Finding, Severity
from vlm_api.reasons import UNREAD, Conditions
from vlm_api.report import Failure
from vlm_api.status import VLMService, VLMServiceStatus
from vlm_operator.controller import reasons
from vlm_operator.controller.pods import CANNOT_START, PodView
from vlm_operator.facts.inspected import from_api
from vlm_operator.facts.models import worth_reading
from vlm_operator.facts.types import ModelFacts
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.ownership import is_owned, owner_reference
from vlm_operator.render import inspection_digest, inspection_job
from vlm_operator.render.names import INSPECT, inspection_name

log = logging.getLogger(__name__)

# The longest that a new service waits for its model's facts: a node, the operator's image, and the program's 75 s.
INSPECT_SECONDS: Final = 120.0
# A claim that is filled, or a Secret that is mended, after the service was made.
RETRY_SECONDS: Final = 300.0
STEP: Final = (
    "mend that, or say spec.model.architecture and parametersBillion: then nothing is read but the size of a model that is "
    "called quantised"
)


@dataclass(frozen=True)
class Waiting:
    """The Job is on its way."""

    message: str


@dataclass(frozen=True)
class Inspector:
    """Reads models by Jobs. Keeps nothing: what is known is in the status, and what is on its way is in the cluster."""

    client: Client
    image: str
    seen: Callable[[Json], None] = lambda found: None
    """Told of each Job that is made, so that it is not made again before the news of it comes."""

    def known(self, service: VLMService, recorded: Inspection | None) -> Inspection | None:
        """What need not be read (again): an empty answer, or the recorded one. None: the files have to be read."""
        engine = service.spec.engine
        quantization = "quantization" in engine.settings or any(
            argument.partition("=")[0] == "--quantization" for argument in engine.args
        )
        if not worth_reading(service.spec.model, quantization=quantization):
            return Inspection()
        return recorded if recorded is not None and recorded.digest == inspection_digest(service) else None

    def look(
        self, service: VLMService, raw: Json, jobs: Sequence[Json], pods: Sequence[Json], now: datetime
    ) -> Inspection | Waiting:
        """The Job's answer, with the digest; makes the Job where there is none. Raises ApiError."""
        digest = inspection_digest(service)
        name = inspection_name(service.name, digest)
        job = next((j for j in jobs if j["metadata"]["name"] == name), None)
        self.tidy(j for j in jobs if j is not job)
        try:
            found: Inspection | Waiting
            if job is None:
                job = self.client.create(kinds.JOB, inspection_job(service, self.image, owner_reference(raw)))
                self.seen(job)
                log.info("created Job/%s", name, extra={"service": service.name})
                found = Waiting(f"the Job {name} reads config.json of {service.spec.model.uri}")
            else:
                found = judge(job, [p for p in pods if is_owned(p, job["metadata"]["uid"])], now)
        except ApiError as error:
            if error.status != 409 and not error.refused:
                raise
            found = Inspection(failure=_failed(f"the API server refused the Job {name}: {error.message}; {STEP}"))
        return found if isinstance(found, Waiting) else found.model_copy(update={"digest": digest})

    def tidy(self, jobs: Iterable[Json]) -> None:
        """Removes Jobs that nobody waits for. Raises ApiError."""
        for job in jobs:
            if not job["metadata"].get("deletionTimestamp"):
                self.client.delete(kinds.JOB, job)
                log.info("deleted Job/%s", job["metadata"]["name"])


def worth_another_try(status: VLMServiceStatus | None, pods: Sequence[PodView], now: datetime) -> bool:
    """Whether a failure is old, or is being looked into again, and no pod gets on without the facts either."""
    if status is None or status.model is None or status.model.failure is None:
        return False
    if not pods or any(pod.failure is None and pod.unschedulable is None for pod in pods):
        return False
    found = next((c for c in status.conditions if c.type == Conditions.MODEL_READY), None)
    if found is None or found.reason == reasons.INSPECTING:
        return found is not None
    return (now - _time(found.last_transition_time)).total_seconds() >= RETRY_SECONDS


def judge(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], now: datetime) -> Inspection | Waiting:
    """What a Job and its pods have come to. The first answer of a pod counts, without waiting for another try."""
    name = job["metadata"]["name"]
    ends = [end for pod in pods if (end := _state(pod).get("terminated"))]
    for end in ends:
        if (said := _answer(end.get("message"))) is not None:
            return said
    if _has_ended(job) and ends:
        how = f"exit code {ends[-1].get('exitCode')}, {ends[-1].get('reason') or 'no reason'}"
        return Inspection(failure=_failed(f"the pod of Job {name} ended without an answer ({how}); {STEP}"))
    waits = _obstacle(pods)
    if not _has_ended(job) and (now - _time(job["metadata"]["creationTimestamp"])).total_seconds() < INSPECT_SECONDS:
        return Waiting(f"the Job {name} reads the model's config.json" + (f"; {waits.message}" if waits else ""))
    if waits is not None:
        return Inspection(failure=waits.model_copy(update={"message": f"{waits.message}; {STEP}"[:2048]}))
    missing = "" if pods else ": no pod was made for it, perhaps by a quota or an admission webhook"
    message = f"the Job {name} had no answer within {INSPECT_SECONDS:.0f} s{missing}; {STEP}"
    return Inspection(failure=Failure(reason="InspectTimedOut", message=message))


def inspected(service: VLMService, found: Inspection) -> ModelFacts | Finding | None:
    """For the plan: what was read, or why nothing was."""
    if found.facts is not None:
        return from_api(found.facts, service.spec.model.uri)
    if found.failure is None:
        return None
    return Finding(
        severity=Severity.WARNING,
        reason=found.failure.reason,
        message=f"the model's config.json could not be read, so the plan was made without it: {found.failure.message}",
        path="spec.model.uri",
    )


def _failed(message: str) -> Failure:
    return Failure(reason="InspectFailed", message=message[:2048])


def _answer(message: object) -> Inspection | None:
    """The program's last words; None for anything else. Never repeated as they are: only what the type allows."""
    if not isinstance(message, str):
        return None
    try:
        said = Inspection.model_validate_json(message, extra="ignore")
    except (ValueError, ValidationError):
        return None
    known = said.facts is not None or (said.failure is not None and said.failure.reason in UNREAD)
    return said if known else None


def _obstacle(pods: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Why the first pod that does not start cannot."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        scheduled: Mapping[str, Any] = next(
            (c for c in status.get("conditions") or [] if c.get("type") == "PodScheduled"), {}
        )
        if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
            said = scheduled.get("message") or "the scheduler gave no reason"
            return Failure(reason="InspectUnschedulable", message=f"pod {name}: {said}"[:1800])
        waiting = _state(pod).get("waiting") or {}
        if waiting.get("reason") in CANNOT_START:
            said = waiting.get("message") or waiting["reason"]
            return _failed(f"pod {name} cannot start: {said}"[:1800])
    return None


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    found: Mapping[str, Any] = next((s.get("state") or {} for s in statuses if s.get("name") == INSPECT), {})
    return found


def _has_ended(job: Mapping[str, Any]) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(c.get("type") in ("Failed", "Complete") and c.get("status") == "True" for c in conditions)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
