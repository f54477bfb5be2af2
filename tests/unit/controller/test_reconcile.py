"""When a service is looked at again, whatever else comes of a reconcile. What it writes: tests/apiserver."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from unit.controller.fakes import FakeClient
from unit.controller.test_reports import AtOnce
from unit.render.samples import plan, sealed, service

from vlm_api.plan import Finding, Severity
from vlm_operator import render
from vlm_operator.controller import reconcile
from vlm_operator.controller.cache import Cache
from vlm_operator.controller.inventory import Inventory
from vlm_operator.controller.observed import Observed
from vlm_operator.controller.queue import Key
from vlm_operator.controller.reconcile import MISSING_KIND_SECONDS, RESYNC_SECONDS, TIDY_SECONDS, Reconciler
from vlm_operator.controller.reports import Reports
from vlm_operator.facts.types import ClaimFacts
from vlm_operator.kube import kinds
from vlm_operator.kube.apply import Applier
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.events import Recorder
from vlm_operator.kube.ownership import owner_reference
from vlm_operator.kube.status import StatusWriter
from vlm_operator.planning import StoredPlan
from vlm_operator.render import inspection_job
from vlm_operator.resolve.claims import claim_findings
from vlm_operator.resolve.findings import group_findings

KEY = Key("default", "vlm")
RAW: dict[str, Any] = {
    "apiVersion": "vlmserve.dev/v1alpha1",
    "kind": "VLMService",
    "metadata": {"name": "vlm", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1},
    "spec": {"model": {"uri": "hf://Qwen/Qwen3-VL-8B-Instruct"}},
}
JOB = inspection_job(service(), "image", owner_reference(RAW))


class Client(FakeClient):
    """Takes any status."""

    def json_patch(self, kind: Any, namespace: str, name: str, patch: Any, *, subresource: str) -> dict[str, Any]:
        return {**RAW, "status": patch[-1]["value"]}


class Chooser:
    """A choice that was made elsewhere."""

    def __init__(self, stored: StoredPlan | None, seen: Observed | ApiError) -> None:
        self.stored, self.seen = stored, seen

    def choose(self, *_: Any) -> tuple[StoredPlan | None, Observed]:
        if isinstance(self.seen, ApiError):
            raise self.seen
        return self.stored, self.seen


def reconciler(stored: StoredPlan | None, seen: Observed | ApiError, *live: dict[str, Any]) -> Reconciler:
    client, cache = Client(), Cache()
    cache.store(kinds.VLM_SERVICE).see(RAW)
    for found in live:
        client.add(found)
        cache.store(kinds.kind_of(found)).see(found)
    return Reconciler(
        cache=cache,
        chooser=Chooser(stored, seen),  # type: ignore[arg-type]
        applier=Applier(client),  # type: ignore[arg-type]
        recorder=Recorder(client, "me"),  # type: ignore[arg-type]
        status=StatusWriter(client),  # type: ignore[arg-type]
        inventory=Inventory(),
        reports=Reports(threads=AtOnce()),
        now=lambda: datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def refused(reason: str) -> tuple[StoredPlan, Observed]:
    made = plan(findings=[Finding(severity=Severity.ERROR, reason=reason, message="no", path="spec.model")])
    return StoredPlan(made, {}), Observed(plan=made)


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [
        ("OutOfDeviceMemory", RESYNC_SECONDS),
        ("LeaderWorkerSetMissing", MISSING_KIND_SECONDS),
        ("ClaimForOnePod", MISSING_KIND_SECONDS),
    ],
)
def test_a_refused_plan_is_made_anew_soon_only_where_what_it_lacks_may_come_untold(reason: str, seconds: float):
    # Each time all pods of the cluster are read, to see which devices are free.
    assert reconciler(*refused(reason))(KEY).again_after_seconds == seconds


def test_what_a_refused_plan_is_soon_made_anew_for_are_findings_that_plans_have():
    missing = group_findings(service(parallelism={"tensor": 16}, multinode={"nodeCount": 2}).spec, False)
    claim = service(model={"uri": "pvc://models/qwen"}, replicas=2).spec
    one_pod = claim_findings(claim, {"models": ClaimFacts(("ReadWriteOncePod",))}, [], 1)
    assert {found.reason for found in (*missing, *one_pod)} == reconcile.UNTOLD


@pytest.mark.parametrize(
    ("deleted", "seconds"),
    [({}, TIDY_SECONDS), ({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}, RESYNC_SECONDS)],
    ids=["there", "held by a finalizer of somebody"],
)
def test_a_job_that_is_to_go_is_looked_for_soon_but_not_without_end(deleted: dict[str, Any], seconds: float):
    job = {**JOB, "metadata": {**JOB["metadata"], "uid": "j", "resourceVersion": "2", **deleted}}
    assert reconciler(None, Observed(plan=plan()), job)(KEY).again_after_seconds == seconds


@pytest.mark.parametrize(("kept", "made_anew"), [(True, False), (False, True)])
def test_a_plan_that_stays_is_left_as_another_release_has_written_it(kept: bool, made_anew: bool):
    of = service(metadata=RAW["metadata"])
    finished, template = sealed(plan(), of)
    made = render.objects(finished, template, of, owner_reference(RAW))
    live = [{**m, "metadata": {**m["metadata"], "uid": m["kind"], "resourceVersion": "3"}} for m in made]
    (config_map,) = [m for m in live if m["kind"] == "ConfigMap"]
    config_map["data"] = {**config_map["data"], "plan.json": config_map["data"]["plan.json"].replace("}", " }")}
    one = reconciler(StoredPlan(finished, template), Observed(plan=finished, kept=kept), *live)
    one(KEY)
    client: Any = one.applier._client
    assert [verb for verb, title in client.calls if title.startswith("ConfigMap/")][:1] == (
        ["delete"] if made_anew else ["force"]
    )


def conditions(outcome: reconcile.Outcome) -> dict[str, tuple[str, str, str]]:
    assert outcome.status is not None
    return {c.type: (c.status.value, c.reason, c.message) for c in outcome.status.conditions}


def test_a_right_that_is_missing_for_a_plan_is_in_the_status():
    forbidden = ApiError(403, "Forbidden", "pods is forbidden")
    outcome = reconciler(None, forbidden)(KEY)
    said = conditions(outcome)
    assert said["Ready"] == (
        "False", "NotApplied", "the API server refused what a plan is made with: pods is forbidden",
    )  # fmt: skip
    assert said["HardwareResolved"][:2] == ("Unknown", "NotApplied")
    assert outcome.again_after_seconds == MISSING_KIND_SECONDS


def test_an_api_server_that_goes_on_failing_while_a_plan_is_made_is_in_the_status_and_before_that_it_is_asked_again():
    one = reconciler(None, ApiError(503, "ServiceUnavailable", "etcd is down"))
    for _ in range(reconcile.TOLD_AFTER_ERRORS - 1):
        with pytest.raises(ApiError):
            one(KEY)
    assert "etcd is down" in conditions(one(KEY))["Ready"][2]


def test_while_no_plan_can_be_made_the_pods_of_the_one_before_are_counted_as_the_spec_says():
    of = service(metadata=RAW["metadata"], replicas=2)
    finished, template = sealed(plan(), of)
    live = [
        {**m, "metadata": {**m["metadata"], "uid": m["kind"], "resourceVersion": "3"}}
        for m in render.objects(finished, template, of, owner_reference(RAW))
    ]
    one = reconciler(None, ApiError(403, "Forbidden", "pods is forbidden"), *live)
    raw = {**RAW, "metadata": {**RAW["metadata"], "resourceVersion": "9"}, "spec": {**RAW["spec"], "suspend": True}}
    one.cache.store(kinds.VLM_SERVICE).see(raw)
    outcome = one(KEY)
    client: Any = one.applier._client
    assert client.objects["Deployment", "default", "vlm"]["spec"]["replicas"] == 0
    assert conditions(outcome)["HardwareResolved"][1] == "HardwareFound", "the plan in force is still what it was"


def test_nothing_is_remembered_of_a_service_that_is_gone(monkeypatch: pytest.MonkeyPatch):
    one = reconciler(*refused("OutOfDeviceMemory"))
    one(KEY)
    one.errors[KEY] = 1
    one.drifts._turned[KEY] = one.shortages._turned[KEY] = 1.0
    one.status._accepted[KEY] = "digest"
    one.cache.store(kinds.VLM_SERVICE).see(RAW, deleted=True)
    assert one(KEY) == reconcile.Outcome(None)
    one.forget(KEY)
    memories = (one.errors, one.drifts._turned, one.shortages._turned, one.status._accepted)
    assert [len(memory) for memory in memories] == [0, 0, 0, 0]
    assert (one.reports._answers, one.reports._asking) == ({}, {})
