"""What a plan is made from: claims that several pods share are read if the operator may."""

from datetime import datetime, timezone
from typing import Any

import pytest
from unit.controller.fakes import FakeClient
from unit.controller.observations import pod
from unit.plan.builders import QWEN3_VL, RUNTIME_IMAGE, cluster, node, request_of, service

from vlm_api.inspection import InspectedModel, Inspection
from vlm_api.plan import ServingPlan
from vlm_api.report import Failure
from vlm_api.status import Condition, ConditionStatus, VLMServiceStatus
from vlm_operator.controller.run.inventory import Inventory
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service.choose import Chooser, PoolChoice
from vlm_operator.controller.service.gather import LivePool, LiveService
from vlm_operator.controller.service.inspect_model import Inspector, inspected
from vlm_operator.controller.service.usage import Usage
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.kinds import Kind
from vlm_operator.manifests import inspection_digest
from vlm_operator.plan.make import make_plan
from vlm_operator.plan.stored import seal
from vlm_operator.sglang.profiles import shipped

RAW: dict[str, Any] = {"metadata": {"name": "qwen3-vl", "namespace": "default", "uid": "u"}}
CLAIM = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "weights", "namespace": "default"},
    "spec": {"accessModes": ["ReadWriteOncePod"]},
}


class Claims(FakeClient):
    """Answers for claims, or with an error, and counts how often it was asked."""

    def __init__(self, error: ApiError | None = None) -> None:
        super().__init__()
        self.add(CLAIM)
        self.error, self.asked = error, 0

    def get(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().get(kind, namespace, name)


def chosen(client: Claims, **spec: Any) -> ServingPlan:
    inventory = Inventory()
    inventory.nodes.update(node())
    chooser = Chooser(client, inventory, Usage(client), Inspector(client, "x"), RUNTIME_IMAGE, shipped())  # type: ignore[arg-type]
    of = service(model=QWEN3_VL | {"cacheClaim": "weights"}, **spec)
    live = LiveService(Key("default", "qwen3-vl"), RAW, of, pools=(LivePool(request_of(of)),))
    (choice,) = chooser.choose(live).pools
    assert choice.plan is not None
    return choice.plan


def test_a_claim_for_one_pod_refuses_a_second_one():
    assert [f.reason for f in chosen(Claims(), replicas=2).errors] == ["ClaimForOnePod"]


def test_without_the_right_to_read_a_claim_the_plan_is_made_with_a_finding():
    made = chosen(Claims(ApiError(403, "Forbidden", "no right")), replicas=2)
    assert not made.errors
    assert "ClaimNotChecked" in [f.reason for f in made.findings]


def test_an_error_that_a_retry_may_fix_decides_nothing():
    with pytest.raises(ApiError):
        chosen(Claims(ApiError(503, "ServiceUnavailable", "etcd is down")), replicas=2)


def test_the_claim_of_a_single_pod_is_not_read():
    client = Claims()
    assert not chosen(client).errors
    assert client.asked == 0


class NoUsage(Usage):
    """Pods that must not be read."""

    def __init__(self) -> None:
        pass

    def of(self, resource: str, namespace: str, service: str) -> dict[str, int]:
        raise AssertionError("the cluster's pods were read")


@pytest.mark.parametrize("spec", [{"hardware": {"device": "cpu"}}, {}], ids=["on the CPU", "a plan that stays"])
def test_the_clusters_pods_are_read_only_for_a_plan_that_depends_on_them(spec: dict[str, Any]):
    inventory = Inventory()
    inventory.nodes.update(node())
    client = FakeClient()
    chooser = Chooser(client, inventory, NoUsage(), Inspector(client, "x"), RUNTIME_IMAGE, shipped())  # type: ignore[arg-type]
    request = request_of(service(**spec))
    stored = None
    if not spec:
        stored = seal(make_plan(request, cluster(node()), runtime_image=RUNTIME_IMAGE), request)
    pods = [pod(plan_hash=stored.plan.hash, ready=True)] if stored is not None else []
    live = LiveService(Key("default", "qwen3-vl"), RAW, service(), pools=(LivePool(request, stored=stored, pods=pods),))
    (choice,) = chooser.choose(live).pools
    assert choice.plan_reused is bool(stored)


NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
UNKNOWN = {"uri": "pvc://models/org/model"}
NOT_FOUND = Failure(reason="ModelNotFound", message="the claim has no folder /org/model")


class Cluster(FakeClient):
    """Creates Jobs that never answer."""

    def create(self, kind: Kind, manifest: dict[str, Any]) -> dict[str, Any]:
        return self.add(manifest)


def changed(
    *claims: str,
    failure: Failure | None = NOT_FOUND,
    old: dict[str, Any] | None = None,
    old_failure: Failure | None = None,
    progressing: tuple[str, str] = ("NotStarted", "2026-01-01T00:00:00Z"),
    **spec: Any,
) -> PoolChoice:
    """The choice for a service that serves, and whose model is now UNKNOWN. ``failure`` is what the status records of it."""
    client, inventory = Cluster(), Inventory()
    inventory.nodes.update(node())
    for name in claims:
        client.add({**CLAIM, "metadata": {"name": name, "namespace": "default"}})
    before = request_of(service(**(old or {})))
    unread = inspected(before, Inspection(failure=old_failure))
    stored = seal(make_plan(before, cluster(node()), runtime_image=RUNTIME_IMAGE, inspected=unread), before)
    request = request_of(service(**({"model": UNKNOWN} | spec)))
    pods = [pod(plan_hash=stored.plan.hash, ready=True)]
    reason, since = progressing
    condition = Condition(
        type="Progressing", status=ConditionStatus.FALSE, reason=reason, message="", last_transition_time=since
    )
    read = Inspection(digest=inspection_digest(request), failure=failure) if failure else None
    live = LiveService(
        Key("default", "qwen3-vl"),
        RAW,
        service(),
        pools=(LivePool(request, stored=stored, pods=pods, inspection=read),),
        previous=VLMServiceStatus(conditions=[condition]),
    )
    inspector = Inspector(client, "x")  # type: ignore[arg-type]
    chooser = Chooser(client, inventory, Usage(client), inspector, RUNTIME_IMAGE, shipped(), now=lambda: NOW)  # type: ignore[arg-type]
    (choice,) = chooser.choose(live).pools
    return choice


def refusals(choice: PoolChoice) -> list[str]:
    assert choice.plan is not None
    return [finding.reason for finding in choice.plan.errors]


def test_a_change_to_a_model_that_was_not_found_leaves_the_plan_in_force():
    choice = changed("models")
    assert (refusals(choice), choice.applicable, choice.inspecting) == (["ModelNotFound"], None, None)


@pytest.mark.parametrize("reason", ["HubUnreachable", "InspectTimedOut", "InspectUnschedulable"])
def test_a_change_is_applied_if_its_model_may_load_all_the_same(reason: str):
    assert changed("models", failure=Failure(reason=reason, message="m")).applicable is not None


@pytest.mark.parametrize("off", [{"suspend": True}, {"replicas": 0}], ids=str)
def test_a_change_of_a_service_without_pods_is_applied(off: dict[str, Any]):
    assert changed(failure=NOT_FOUND, **off).applicable is not None


def test_a_service_that_serves_although_its_model_was_not_read_can_be_changed():
    choice = changed(old={"model": UNKNOWN}, old_failure=NOT_FOUND, workload={"concurrency": 8})
    assert choice.applicable is not None


def test_a_claim_that_does_not_exist_is_told_before_the_model_is_read():
    choice = changed(failure=None)
    assert (refusals(choice), choice.applicable, choice.job) == (["ClaimNotFound"], None, None)
    cache = changed(failure=None, model=QWEN3_VL | {"cacheClaim": "weights"})
    assert refusals(cache) == ["ClaimNotFound"]
    assert changed("models", failure=None).inspecting


@pytest.mark.parametrize(
    "progressing", [("NotStarted", "2025-12-31T23:55:00Z"), ("Inspecting", "2026-01-01T00:00:00Z")]
)
def test_a_refused_change_is_told_while_its_model_is_read_again(progressing: tuple[str, str]):
    choice = changed("models", progressing=progressing)
    assert refusals(choice) == ["ModelNotFound"]
    assert choice.inspecting
    assert choice.job


def test_what_the_files_of_a_plan_made_without_them_forbid_stays_refused():
    request = request_of(service(model=UNKNOWN, parallelism={"tensor": 2}))
    unread = inspected(request, Inspection(failure=NOT_FOUND))
    stored = seal(make_plan(request, cluster(node()), runtime_image=RUNTIME_IMAGE, inspected=unread), request)
    facts = InspectedModel(architecture="Qwen3VLForConditionalGeneration", attention_heads=3)
    inventory, client = Inventory(), Cluster()
    inventory.nodes.update(node())
    read = Inspection(digest=inspection_digest(request), facts=facts)
    live = LiveService(
        Key("default", "qwen3-vl"),
        RAW,
        service(),
        pools=(LivePool(request, stored=stored, pods=[pod(plan_hash=stored.plan.hash)], inspection=read),),
    )
    chooser = Chooser(
        client, inventory, Usage(client), Inspector(client, "x"), RUNTIME_IMAGE, shipped(), now=lambda: NOW
    )  # type: ignore[arg-type]
    (choice,) = chooser.choose(live).pools
    assert refusals(choice) == ["HeadsNotDivisible"]


@pytest.mark.parametrize(
    ("mode", "spec", "told"),
    [
        ("ReadWriteOncePod", {"replicas": 2}, ["ClaimForOnePod"]),
        ("ReadWriteMany", {"replicas": 2}, []),
        ("ReadWriteOncePod", {}, []),
        ("ReadWriteMany", {"scaling": {"minReplicas": 1, "maxReplicas": 2, "targetInFlight": 9999}}, ["ScalesLate"]),
    ],
)
def test_a_plan_in_force_tells_what_the_scale_of_today_means(mode: str, spec: dict[str, Any], told: list[str]):
    client, inventory = Claims(), Inventory()
    inventory.nodes.update(node())
    client.add({**CLAIM, "spec": {"accessModes": [mode]}})
    model = QWEN3_VL | {"cacheClaim": "weights"}
    before = request_of(service(model=model))
    stored = seal(make_plan(before, cluster(node()), runtime_image=RUNTIME_IMAGE), before)
    request = request_of(service(model=model, **spec))
    pods = [pod(plan_hash=stored.plan.hash, ready=True)]
    live = LiveService(Key("default", "qwen3-vl"), RAW, service(), pools=(LivePool(request, stored=stored, pods=pods),))
    chooser = Chooser(client, inventory, NoUsage(), Inspector(client, "x"), RUNTIME_IMAGE, shipped())  # type: ignore[arg-type]
    (choice,) = chooser.choose(live).pools
    assert choice.applicable == stored, "it stays in force"
    assert choice.plan is not None
    assert [f.reason for f in choice.plan.findings if f not in stored.plan.findings] == told
    assert client.asked == (1 if told == ["ClaimForOnePod"] or "replicas" in spec or "scaling" in spec else 0)
