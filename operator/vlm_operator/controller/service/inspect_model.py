"""The Job that reads a model's files: created once per model, awaited, and deleted once the status has its answer."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from vlm_api import reasons
from vlm_api.inspection import Inspection
from vlm_api.plan import About, Finding, Severity
from vlm_api.reasons import UNREAD, Conditions
from vlm_api.report import Failure
from vlm_api.status import VLMServiceStatus
from vlm_operator.controller.service.gather import LiveService
from vlm_operator.controller.status.pods import CANNOT_START, PodView
from vlm_operator.facts.model.inspected import from_api
from vlm_operator.facts.model.lookup import worth_reading
from vlm_operator.facts.types import ModelFacts
from vlm_operator.kube import kinds
from vlm_operator.kube.client import ApiError, Client, Json
from vlm_operator.kube.ownership import is_owned
from vlm_operator.manifests import inspection_digest, inspection_job
from vlm_operator.manifests.names import INSPECT, inspection_name
from vlm_operator.plan.request import PoolRequest
from vlm_operator.plan.stored import StoredPlan

log = logging.getLogger(__name__)

# How long a new service waits for its model's facts: for a node, the operator's image, and the program's 75 s.
INSPECT_SECONDS: Final = 120.0
# For a claim that is filled, or a Secret that is corrected, after the service was created.
RETRY_SECONDS: Final = 300.0
# What the pods of a plan would fail by as well.
UNLOADABLE: Final = frozenset({"ModelNotFound", "ModelAccessDenied", "ModelUnreadable", "SecretNotFound"})
STEP: Final = (
    "correct that, or set spec.model.architecture and parametersBillion: then only quantised checkpoints are read"
)


@dataclass(frozen=True)
class Waiting:
    """The Job has not answered yet."""

    message: str


@dataclass(frozen=True)
class Inspector:
    """Reads models by Jobs. Stateless: answers are in the status, and Jobs in the cluster."""

    client: Client
    image: str
    on_created: Callable[[Json], None] = lambda job: None
    """Called with each Job that is created, so that the cache has it before its event."""

    def known(self, request: PoolRequest, recorded: Inspection | None) -> Inspection | None:
        """What is known without reading the files (again): nothing, if the plan does not need them, or the recorded answer.

        None: the files must be read. Raises InvalidInput as ``request.choices`` does.
        """
        quantization = request.choices.get("quantization") is not None
        if not worth_reading(request.spec.model, quantization=quantization):
            return Inspection()
        return recorded if recorded is not None and recorded.digest == inspection_digest(request) else None

    def inspect(self, request: PoolRequest, live: LiveService, now: datetime) -> tuple[str, Inspection | Waiting]:
        """The Job's name, and its answer with the digest. Creates the Job if it does not exist. Raises ApiError."""
        digest = inspection_digest(request)
        name = inspection_name(request.service, digest)
        job = next((j for j in live.jobs if j["metadata"]["name"] == name), None)
        answer: Inspection | Waiting
        try:
            if job is None:
                self.on_created(self.client.create(kinds.JOB, inspection_job(request, self.image, live.owner)))
                log.info("created Job/%s", name, extra={"service": request.service})
                answer = Waiting(f"Job {name} reads config.json of {request.spec.model.uri}")
            else:
                answer = judge(job, [p for p in live.job_pods if is_owned(p, job["metadata"]["uid"])], now)
        except ApiError as error:
            if error.status != 409 and not error.refused:
                raise
            answer = Inspection(failure=_failed(f"the API server rejected Job {name}: {error.message}; {STEP}"))
        return name, answer if isinstance(answer, Waiting) else answer.model_copy(update={"digest": digest})

    def tidy(self, jobs: Iterable[Json]) -> None:
        """Deletes Jobs that are no longer needed. Raises ApiError."""
        for job in jobs:
            if not job["metadata"].get("deletionTimestamp"):
                self.client.delete(kinds.JOB, job)
                log.info("deleted Job/%s", job["metadata"]["name"])


def worth_another_try(
    status: VLMServiceStatus | None, recorded: Inspection | None, pods: Sequence[PodView], now: datetime
) -> bool:
    """Whether to read files again that could not be read: after a while, and only if no pod runs without their facts."""
    if status is None or recorded is None or recorded.failure is None:
        return False
    if not pods or any(pod.failure is None and pod.unschedulable is None for pod in pods):
        return False
    ready = next((c for c in status.conditions if c.type == Conditions.MODEL_READY), None)
    if ready is None or ready.reason == reasons.INSPECTING:
        return ready is not None
    return (now - _time(ready.last_transition_time)).total_seconds() >= RETRY_SECONDS


def is_refused(inspection: Inspection, replaced: StoredPlan | None) -> bool:
    """Whether pods of a new plan could not load the model, so that the one in force stays.

    Not if that was made without the same files: pods may have them otherwise, and such a service must remain changeable.
    """
    failure = inspection.failure
    if failure is None or replaced is None or failure.reason not in UNLOADABLE:
        return False
    return not any(f.reason == failure.reason and failure.message in f.message for f in replaced.plan.findings)


def refusal_is_old(status: VLMServiceStatus | None, now: datetime) -> bool:
    """Whether to read again the files that a refused change names: after a while, and until the Job has answered."""
    progressing = next((c for c in status.conditions if c.type == Conditions.PROGRESSING), None) if status else None
    if progressing is None or progressing.reason == reasons.INSPECTING:
        return True
    # Progressing has been False since the last attempt. The queue may be a tenth early.
    return (now - _time(progressing.last_transition_time)).total_seconds() >= 0.9 * RETRY_SECONDS


def judge(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], now: datetime) -> Inspection | Waiting:
    """The result of a Job and its pods. The first answer of a pod counts, without waiting for another attempt."""
    name = job["metadata"]["name"]
    ends = [end for pod in pods if (end := _state(pod).get("terminated"))]
    for end in ends:
        if (answer := _answer(end.get("message"))) is not None:
            return answer
    if _has_ended(job) and ends:
        how = f"exit code {ends[-1].get('exitCode')}, {ends[-1].get('reason') or 'no reason'}"
        return Inspection(failure=_failed(f"the pod of Job {name} exited without an answer ({how}); {STEP}"))
    obstacle = _obstacle(pods)
    if not _has_ended(job) and (now - _time(job["metadata"]["creationTimestamp"])).total_seconds() < INSPECT_SECONDS:
        return Waiting(f"Job {name} reads the model's config.json" + (f"; {obstacle.message}" if obstacle else ""))
    if obstacle is not None:
        return Inspection(failure=obstacle.model_copy(update={"message": f"{obstacle.message}; {STEP}"[:2048]}))
    missing = "" if pods else ": its pod was not created, maybe because of a quota or an admission webhook"
    message = f"Job {name} did not answer within {INSPECT_SECONDS:.0f} s{missing}; {STEP}"
    return Inspection(failure=Failure(reason="InspectTimedOut", message=message))


def inspected(
    request: PoolRequest, inspection: Inspection, replaced: StoredPlan | None = None
) -> ModelFacts | Finding | None:
    """The plan's input: what was read, or why nothing was. ``replaced`` is the plan in force that a new one would replace."""
    if inspection.facts is not None:
        return from_api(inspection.facts, request.spec.model.uri)
    if inspection.failure is None:
        return None
    refused = is_refused(inspection, replaced)
    consequence = (
        f"the change is not applied, tried again every {RETRY_SECONDS:.0f} s"
        if refused
        else "the plan was made without it"
    )
    return Finding(
        severity=Severity.ERROR if refused else Severity.WARNING,
        reason=inspection.failure.reason,
        about=About.RESOURCES,
        message=f"the model's config.json could not be read, so {consequence}: {inspection.failure.message}",
        path="spec.model.uri",
    )


def _failed(message: str) -> Failure:
    return Failure(reason="InspectFailed", message=message[:2048])


def _answer(message: object) -> Inspection | None:
    """The program's answer in the termination message; None if it is anything else, which is never repeated."""
    if not isinstance(message, str):
        return None
    try:
        answer = Inspection.model_validate_json(message, extra="ignore")
    except (ValueError, ValidationError):
        return None
    valid = answer.facts is not None or (answer.failure is not None and answer.failure.reason in UNREAD)
    return answer if valid else None


def _obstacle(pods: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Why the first pod that does not start cannot."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        scheduled: Mapping[str, Any] = next(
            (c for c in status.get("conditions") or [] if c.get("type") == "PodScheduled"), {}
        )
        if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
            why = scheduled.get("message") or "the scheduler gives no reason"
            return Failure(reason="InspectUnschedulable", message=f"pod {name}: {why}"[:1800])
        waiting = _state(pod).get("waiting") or {}
        if waiting.get("reason") in CANNOT_START:
            why = str(waiting.get("message") or waiting["reason"])
            failure = _failed(f"pod {name} cannot start: {why}"[:1800])
            missing = waiting["reason"] == "CreateContainerConfigError" and "secret" in why.lower()
            return failure.model_copy(update={"reason": "SecretNotFound"}) if missing else failure
    return None


def _state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    state: Mapping[str, Any] = next((s.get("state") or {} for s in statuses if s.get("name") == INSPECT), {})
    return state


def _has_ended(job: Mapping[str, Any]) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(c.get("type") in ("Failed", "Complete") and c.get("status") == "True" for c in conditions)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
