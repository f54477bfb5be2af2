"""One reconcile with a choice that was made elsewhere: what it writes, and what it remembers. More: tests/apiserver."""

from datetime import datetime, timezone
from typing import Any

import pytest
from unit.controller.fakes import AtOnce, FakeClient
from unit.controller.live import KEY, RAW, cache_of, rendered
from unit.manifests.samples import plan, sealed, service
from unit.plan.builders import request_of

from vlm_api.plan import Finding, Severity
from vlm_operator.controller.run.inventory import Inventory
from vlm_operator.controller.service.choose import Choices, PoolChoice
from vlm_operator.controller.service.gather import LiveService
from vlm_operator.controller.service.inspect_model import Inspector
from vlm_operator.controller.service.reconcile import REPORTED_AFTER_ERRORS, Outcome, Reconciler
from vlm_operator.controller.service.reports import Reports
from vlm_operator.controller.service.requeue import POLL_SECONDS
from vlm_operator.errors import InvalidInput
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import Applier
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.events import Recorder
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.kube.status import StatusWriter
from vlm_operator.manifests import inspection_job
from vlm_operator.plan.stored import StoredPlan

JOB = inspection_job(request_of(service()), "image", owner_reference(RAW))


class Client(FakeClient):
    """Takes any status."""

    def json_patch(self, kind: Any, namespace: str, name: str, patch: Any, *, subresource: str) -> dict[str, Any]:
        return {**RAW, "status": patch[-1]["value"]}


class Chooser:
    """A choice that was made elsewhere."""

    def __init__(self, client: Client, choice: PoolChoice | Choices | ApiError) -> None:
        self.choice = choice
        self.inspector = Inspector(client, "image")  # type: ignore[arg-type]

    def choose(self, live: LiveService) -> Choices:
        if isinstance(self.choice, ApiError):
            raise self.choice
        return self.choice if isinstance(self.choice, Choices) else Choices((self.choice,))


def reconciler(choice: PoolChoice | Choices | ApiError, *live: dict[str, Any], **raw: Any) -> Reconciler:
    client = Client()
    for found in live:
        client.add(found)
    return Reconciler(
        cache=cache_of(*live, raw={**RAW, **raw}),
        chooser=Chooser(client, choice),  # type: ignore[arg-type]
        applier=Applier(client),  # type: ignore[arg-type]
        recorder=Recorder(client, "me"),  # type: ignore[arg-type]
        status=StatusWriter(client),  # type: ignore[arg-type]
        inventory=Inventory(),
        reports=Reports(threads=AtOnce()),
        now=lambda: datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def client_of(one: Reconciler) -> Any:
    return one.applier._client


OF = service(metadata=RAW["metadata"])
STORED = StoredPlan(*sealed(plan(), OF))
REFUSED = PoolChoice(
    StoredPlan(
        plan(
            findings=[
                Finding(
                    severity=Severity.ERROR, reason="DoesNotFit", about="Resources", message="no", path="spec.model"
                )
            ]
        ),
        {},
    )
)
FORBIDDEN = ApiError(403, "Forbidden", "pods is forbidden")


def conditions(outcome: Outcome) -> dict[str, tuple[str, str, str]]:
    return {c.type: (c.status.value, c.reason, c.message) for c in outcome.status.conditions}


@pytest.mark.parametrize(("reused", "first"), [(True, "force"), (False, "delete")])
def test_a_plan_that_stays_is_left_as_another_release_has_written_it(reused: bool, first: str):
    live = rendered(plan(), OF)
    (config_map,) = [m for m in live if m["kind"] == "ConfigMap"]
    config_map["data"] = {**config_map["data"], "plan.json": config_map["data"]["plan.json"].replace("}", " }")}
    one = reconciler(PoolChoice(STORED, plan_reused=reused), *live)
    one(KEY)
    assert [verb for verb, title in client_of(one).calls if title.startswith("ConfigMap/")][:1] == [first]


def test_a_right_that_is_missing_for_a_plan_is_in_the_status():
    outcome = reconciler(FORBIDDEN)(KEY)
    found = conditions(outcome)
    assert found["Ready"][:2] == ("False", "NotApplied")
    assert "pods is forbidden" in found["Ready"][2]
    assert found["HardwareResolved"][:2] == ("Unknown", "NotApplied")
    assert outcome.again_after_seconds == POLL_SECONDS


def test_a_transient_error_is_retried_and_in_the_status_if_it_goes_on():
    one = reconciler(ApiError(503, "ServiceUnavailable", "etcd is down"))
    for _ in range(REPORTED_AFTER_ERRORS - 1):
        with pytest.raises(ApiError):
            one(KEY)
    for _ in range(2):
        assert "etcd is down" in conditions(one(KEY))["Ready"][2]


@pytest.mark.parametrize(
    "choice",
    [
        FORBIDDEN,
        REFUSED,
        PoolChoice(invalid=InvalidInput("spec.x", "is wrong")),
        PoolChoice(inspecting="x"),
    ],
    ids=["no plan can be made", "the plan is refused", "the spec is invalid", "the model is being read"],
)
def test_without_a_new_plan_the_pods_of_the_one_in_force_are_still_scaled_and_nothing_else_changes(choice: Any):
    live = rendered(plan(), OF)
    one = reconciler(choice, *live, spec={**RAW["spec"], "suspend": True})
    one(KEY)
    assert client_of(one).objects["Deployment", "default", "vlm"]["spec"]["replicas"] == 0
    assert {title for _, title in client_of(one).calls if not title.startswith("Event/")} == {"Deployment/vlm"}


@pytest.mark.parametrize("spec", [{"replicas": 20}, {"suspend": True}, {"scaling": {"maxReplicas": 9}}])
def test_of_a_spec_that_cannot_be_parsed_nothing_is_applied(spec: dict[str, Any]):
    live = rendered(plan(), service(metadata=RAW["metadata"], **spec))
    one = reconciler(Choices((PoolChoice(),)), *live, spec={**RAW["spec"], **spec, "model": 1})
    one(KEY)
    assert [title for _, title in client_of(one).calls if not title.startswith("Event/")] == []


def test_what_the_plan_in_force_says_of_hardware_stays_while_no_plan_can_be_made():
    outcome = reconciler(FORBIDDEN, *rendered(plan(), OF))(KEY)
    assert conditions(outcome)["HardwareResolved"][1] == "HardwareFound"


def test_a_workload_whose_plan_is_lost_is_left_alone_while_a_new_one_is_refused():
    live = [o for o in rendered(plan(), OF) if o["kind"] != "ConfigMap"]
    one = reconciler(REFUSED, *live)
    one(KEY)
    assert [title for _, title in client_of(one).calls if not title.startswith("Event/")] == []


def test_objects_that_nothing_needs_any_more_are_removed():
    scaled = rendered(plan(), service(metadata=RAW["metadata"], scaling={"maxReplicas": 2}))
    autoscaler = [o for o in scaled if o["kind"] == "HorizontalPodAutoscaler"]
    one = reconciler(PoolChoice(STORED, plan_reused=True), *rendered(plan(), OF), *autoscaler)
    one(KEY)
    assert ("delete", "HorizontalPodAutoscaler/vlm") in client_of(one).calls


def test_a_refused_write_is_in_the_status_behind_what_is_wrong_with_the_spec():
    def refuse(one: Reconciler) -> Reconciler:
        client_of(one).apply = lambda *_, **__: (_ for _ in ()).throw(ApiError(422, "Invalid", "no such field"))
        return one

    found = conditions(refuse(reconciler(PoolChoice(STORED)))(KEY))
    assert found["Ready"][:2] == ("False", "NotApplied")
    live = rendered(plan(), OF)
    found = conditions(refuse(reconciler(REFUSED, *live, spec={**RAW["spec"], "suspend": True}))(KEY))
    assert found["Ready"][1] == "DoesNotFit"


def test_a_job_that_no_choice_awaits_is_deleted():
    job = {**JOB, "metadata": {**JOB["metadata"], "uid": "j", "resourceVersion": "2"}}
    one = reconciler(PoolChoice(inspecting="reading", job=JOB["metadata"]["name"]), job)
    one(KEY)
    assert ("delete", f"Job/{JOB['metadata']['name']}") not in client_of(one).calls
    one = reconciler(PoolChoice(STORED), job)
    one(KEY)
    assert ("delete", f"Job/{JOB['metadata']['name']}") in client_of(one).calls


def test_nothing_is_remembered_of_a_service_that_is_gone():
    one = reconciler(REFUSED)
    one(KEY)
    one.errors[KEY] = 1
    one.status._accepted[KEY] = "digest"
    one.cache.store(kinds.VLM_SERVICE).update(RAW, deleted=True)
    assert one(KEY) == Outcome(None)
    one.forget(KEY)
    drifts, shortages = one.observer.drifts, one.observer.shortages
    memories = (one.errors, one.status._accepted, drifts._reported, drifts._changed_at, shortages._reported)
    assert [len(memory) for memory in memories] == [0] * 5
    assert (one.reports._answers, one.reports._asking) == ({}, {})


@pytest.mark.parametrize("place", ["gather", "act", "conclude"])
def test_a_fault_of_the_operator_is_in_the_status_of_the_generation_that_brought_it(monkeypatch, place):
    live = rendered(plan(), OF)
    served = reconciler(PoolChoice(STORED, plan_reused=True), *live)(KEY).status
    assert served is not None
    one = reconciler(PoolChoice(STORED, plan_reused=True), *live, status=served.to_api())
    raw = {**RAW, "metadata": {**RAW["metadata"], "generation": 2, "resourceVersion": "9"}, "status": served.to_api()}
    one.cache.store(kinds.VLM_SERVICE).update(raw)

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("a-secret")

    monkeypatch.setattr(f"vlm_operator.controller.service.reconcile.{place}", broken)
    written: list[dict[str, Any]] = []
    monkeypatch.setattr(one.status, "write", lambda raw, status: written.append(status))
    with pytest.raises(KeyError):
        one(KEY)
    (status,) = written
    before = {c["type"]: c for c in served.to_api()["conditions"]}
    after = {c["type"]: c for c in status["conditions"]}
    ready = after.pop("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "OperatorFault")
    assert status["observedGeneration"] == ready["observedGeneration"] == 2
    assert "KeyError in test_reconcile.py" in ready["message"]
    assert "a-secret" not in str(status)
    assert after == {name: c for name, c in before.items() if name != "Ready"}
    assert {**status, "conditions": 0, "observedGeneration": 1} == {**served.to_api(), "conditions": 0}
    assert [title for _, title in client_of(one).calls if title.startswith("Event/")]
