"""What the inspecting Job and its pod have come to."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from unit.controller.fakes import FakeClient
from unit.manifests.samples import service
from unit.plan.builders import request_of

from vlm_api.inspection import InspectedModel, Inspection
from vlm_api.reasons import UNREAD
from vlm_api.report import Failure
from vlm_api.status import VLMServiceStatus
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service.gather import LivePool, LiveService
from vlm_operator.controller.service.inspect_model import (
    INSPECT_SECONDS,
    RETRY_SECONDS,
    Inspector,
    Waiting,
    inspected,
    judge,
    worth_another_try,
)
from vlm_operator.controller.status.pods import PodView, view
from vlm_operator.facts.types import ModelFacts
from vlm_operator.kube.client import ApiError
from vlm_operator.manifests import inspection_digest

MADE = datetime(2026, 1, 1, tzinfo=timezone.utc)
SOON, LATE = MADE + timedelta(seconds=20), MADE + timedelta(seconds=INSPECT_SECONDS + 1)
FACTS = Inspection(facts=InspectedModel(architecture="A", layers=2))
DENIED = Inspection(failure=Failure(reason="ModelAccessDenied", message="the hub answers 401"))
FAILED = {"restartCount": 3, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}
RAW: dict[str, Any] = {"metadata": {"name": "vlm", "namespace": "default", "uid": "u"}}


def job(ended: str | None = None, name: str = "vlm-inspect-x") -> dict[str, Any]:
    conditions = [{"type": ended, "status": "True", "reason": "Any"}] if ended else []
    metadata = {"name": name, "namespace": "default", "uid": "j", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"kind": "Job", "metadata": metadata, "status": {"conditions": conditions}}


def pod(state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    statuses = [{"name": "inspect", "state": state}] if state else []
    return {"metadata": {"name": "vlm-inspect-x-1"}, "status": {"containerStatuses": statuses, **status}}


def ended(message: str, code: int = 0) -> dict[str, Any]:
    return pod({"terminated": {"exitCode": code, "reason": "Completed", "message": message}})


def unschedulable() -> dict[str, Any]:
    answer = "0/3 nodes are available: 3 node(s) had volume node affinity conflict."
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": answer}])


def waits_for(reason: str, message: str = "") -> dict[str, Any]:
    return pod({"waiting": {"reason": reason, "message": message}})


@pytest.mark.parametrize("answer", [FACTS, DENIED], ids=["facts", "a refusal"])
def test_the_first_answer_of_a_pod_counts_even_before_the_job_has_ended(answer: Inspection):
    assert judge(job(), [ended(answer.model_dump_json(by_alias=True), 1)], SOON) == answer


def test_an_answer_that_came_late_still_counts():
    assert judge(job("Failed"), [ended(FACTS.model_dump_json(by_alias=True))], LATE) == FACTS


ON_THE_WAY: dict[str, list[dict[str, Any]]] = {
    "no pod yet": [],
    "no node yet": [unschedulable()],
    "an image that is pulled": [waits_for("ContainerCreating")],
    "a first try that ended without an answer": [ended("Killed", 137)],
    "a pod that runs": [pod({"running": {}})],
}


@pytest.mark.parametrize("pods", ON_THE_WAY.values(), ids=ON_THE_WAY.keys())
def test_a_job_that_may_still_answer_is_waited_for(pods: list[dict[str, Any]]):
    assert isinstance(judge(job(), pods, SOON), Waiting)


def test_an_obstacle_is_reported_while_the_job_is_waited_for():
    found = judge(job(), [unschedulable()], SOON)
    assert isinstance(found, Waiting)
    assert "volume node affinity" in found.message


# name -> (Job, pods, time, reason, a part of the message)
GIVEN_UP: dict[str, tuple[dict[str, Any], list[dict[str, Any]], datetime, str, str]] = {
    "no node": (job(), [unschedulable()], LATE, "InspectUnschedulable", "volume node affinity"),
    "no image": (job(), [waits_for("ImagePullBackOff", "not found")], LATE, "InspectFailed", "not found"),
    "no Secret": (
        job(),
        [waits_for("CreateContainerConfigError", 'secret "hub" not found')],
        LATE,
        "SecretNotFound",
        'secret "hub"',
    ),
    "no pod": (job(), [], LATE, "InspectTimedOut", "quota"),
    "a pod that hangs": (job(), [pod({"running": {}})], LATE, "InspectTimedOut", "120 s"),
    "its own deadline": (job("Failed"), [], LATE, "InspectTimedOut", "120 s"),
    "no answer": (job("Failed"), [ended("Traceback: hf_secret", 1)], SOON, "InspectFailed", "exit code 1"),
    "an end without a word": (job("Complete"), [ended("", 0)], SOON, "InspectFailed", "exit code 0"),
    "an answer of another program": (
        job("Failed"),
        [ended('{"failure": {"reason": "Evil", "message": "m"}}', 1)],
        SOON,
        "InspectFailed",
        "exit code 1",
    ),
}


@pytest.mark.parametrize(("the_job", "pods", "now", "reason", "says"), GIVEN_UP.values(), ids=GIVEN_UP.keys())
def test_a_job_without_an_answer_is_given_up_with_the_reason(
    the_job: dict[str, Any], pods: list[dict[str, Any]], now: datetime, reason: str, says: str
):
    found = judge(the_job, pods, now)
    assert isinstance(found, Inspection)
    assert (found.failure.reason, says in found.failure.message) == (reason, True)
    assert "spec.model.architecture" in found.failure.message
    assert "hf_secret" not in found.failure.message
    assert reason in UNREAD


UNKNOWN = service(model={"uri": "hf://org/model"})


def looked(client: FakeClient, *jobs: dict[str, Any]) -> Inspection | Waiting:
    request = request_of(UNKNOWN)
    live = LiveService(Key("default", "vlm"), RAW, UNKNOWN, pools=(LivePool(request),), jobs=jobs)
    name, answer = Inspector(client, "image").inspect(request, live, SOON)  # type: ignore[arg-type]
    assert name.startswith("vlm-inspect-")
    return answer


def test_a_job_is_created_once_and_older_ones_do_not_count():
    client = FakeClient()
    assert isinstance(looked(client, job(name="vlm-inspect-old")), Waiting)
    assert [verb for verb, _ in client.calls] == ["create"]
    (made,) = client.objects.values()
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert isinstance(looked(client, made), Waiting)
    assert len(client.calls) == 1


def test_a_job_that_is_being_deleted_is_not_deleted_again():
    client = FakeClient()
    old, going = client.add(job(name="old")), client.add(job(name="going"))
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    Inspector(client, "image").tidy([old, going])  # type: ignore[arg-type]
    assert client.calls == [("delete", "Job/old")]


def test_a_job_that_the_api_server_rejects_does_not_stop_the_service():
    client = FakeClient()
    client.broken = ApiError(403, "Forbidden", "exceeded quota: pods=0")
    answer = looked(client)
    assert isinstance(answer, Inspection)
    assert "exceeded quota" in answer.failure.message
    assert answer.digest, "so that it is not tried again and again"


def test_an_unreachable_api_server_is_an_error():
    client = FakeClient()
    client.broken = ApiError(0, "NoAnswer", "no answer")
    with pytest.raises(ApiError):
        looked(client)


def test_what_is_recorded_for_these_files_is_known_and_for_others_it_is_not():
    inspector, request = Inspector(FakeClient(), "image"), request_of(UNKNOWN)  # type: ignore[arg-type]
    assert inspector.known(request, None) is None
    assert inspector.known(request, Inspection(digest="another")) is None
    recorded = Inspection(digest=inspection_digest(request))
    assert inspector.known(request, recorded) is recorded
    assert inspector.known(request_of(service()), None) == Inspection(), "the table of models knows it"


def test_files_are_read_for_a_quantization_wherever_the_user_writes_it():
    described = {"model": {"uri": "hf://org/model", "architecture": "A", "parametersBillion": 8}}
    inspector = Inspector(FakeClient(), "image")  # type: ignore[arg-type]
    assert inspector.known(request_of(service(**described)), None) == Inspection()
    container = {"name": "main", "args": ["--quantization", "awq"]}
    for more in (
        {"engine": {"settings": {"quantization": "awq"}}},
        {"engine": {"args": ["--quantization", "awq"]}},
        {"template": {"spec": {"containers": [container]}}},
    ):
        assert inspector.known(request_of(service(**described, **more)), None) is None


def test_the_plan_gets_facts_or_a_finding_with_the_failure_s_reason():
    facts = inspected(request_of(UNKNOWN), FACTS)
    assert isinstance(facts, ModelFacts)
    assert (facts.architecture, facts.layers) == ("A", 2)
    finding = inspected(request_of(UNKNOWN), DENIED)
    assert not isinstance(finding, ModelFacts)
    assert (finding.severity.value, finding.reason) == ("Warning", "ModelAccessDenied")
    assert inspected(request_of(UNKNOWN), Inspection()) is None


def tried(seconds_ago: float, reason: str = "ModelAccessDenied", failure: Failure | None = DENIED.failure) -> Any:
    """A status whose model could not be read that long before LATE."""
    since = (LATE - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    state = "Unknown" if reason == "Inspecting" else "False"
    condition = {"type": "ModelReady", "status": state, "reason": reason, "message": "", "lastTransitionTime": since}
    return VLMServiceStatus.model_validate(
        {"conditions": [condition], "model": Inspection(digest="d", failure=failure).to_api()}
    )


FAILING = view({"metadata": {"name": "a"}, "status": {"containerStatuses": [{"name": "main", **FAILED}]}})
STARTING = view({"metadata": {"name": "b"}, "status": {}})

# name -> (status, pods, whether the files are read again)
TRIES: dict[str, tuple[Any, list[PodView], bool]] = {
    "an old failure, and pods that fail too": (tried(RETRY_SECONDS + 1), [FAILING], True),
    "a failure that is being looked into again": (tried(1, "Inspecting"), [FAILING], True),
    "a new failure": (tried(10), [FAILING], False),
    "an old failure, but a pod gets on": (tried(RETRY_SECONDS + 1), [FAILING, STARTING], False),
    "an old failure, and no pods wanted": (tried(RETRY_SECONDS + 1), [], False),
    "no failure": (tried(RETRY_SECONDS + 1, failure=None), [FAILING], False),
    "no status": (None, [FAILING], False),
}


@pytest.mark.parametrize(("status", "pods", "again"), TRIES.values(), ids=TRIES.keys())
def test_files_are_read_again_for_a_claim_or_secret_that_is_corrected_later(
    status: Any, pods: list[PodView], again: bool
):
    assert worth_another_try(status, status and status.model, pods, LATE) is again
