"""Names that a service needs and somebody else has: the problem that is reported."""

from typing import Any

import pytest
from unit.controller.fakes import FakeClient
from unit.kube.test_writers import RAW
from unit.manifests.samples import plan, sealed, service
from unit.plan.builders import request_of

from vlm_api.plan import PlanResources
from vlm_operator import manifests as render
from vlm_operator.controller.service.name_conflicts import hidden_group, problem_of
from vlm_operator.kube.apply import Applied, Applier
from vlm_operator.kube.ownership import owner_reference

GROUP: dict[str, Any] = {"kind": "LeaderWorkerSet", "metadata": {"name": "vlm-group", "namespace": "default"}}


def owned_by(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "any/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}]


def service_of(owners: list[dict[str, Any]], name: str = "vlm-group") -> dict[str, Any]:
    return {"kind": "Service", "metadata": {"name": name, "namespace": "default", "ownerReferences": owners}}


def group_manifests() -> list[dict[str, Any]]:
    of = service()
    finished, template = sealed(plan(resources=PlanResources(devices_per_pod=8, pods=2)), of)
    return render.objects([render.Pool(finished, template, request_of(of))], owner_reference(RAW))


@pytest.mark.parametrize(
    ("owners", "whom"),
    [
        pytest.param(owned_by("VLMService", "vlm-group"), ("VLMService", "vlm-group"), id="another VLMService"),
        pytest.param(owned_by("Gateway", "vlm"), ("Gateway", "vlm"), id="somebody's controller"),
        pytest.param([], None, id="made by hand"),
    ],
)
def test_a_group_is_not_created_beside_a_service_that_its_controller_would_take_for_its_own(owners: Any, whom: Any):
    client = FakeClient()
    client.add(service_of(owners))
    done = Applier(client).apply(group_manifests(), [], "u")  # type: ignore[arg-type]
    assert done.taken == {"Service/vlm-group": whom}
    assert client.calls == []


def test_a_group_is_created_if_the_name_of_its_service_is_free_or_left_from_the_previous_group():
    for left in ([], [service_of(owned_by("LeaderWorkerSet", "vlm-group"))]):
        client = FakeClient()
        for found in left:
            client.add(found)
        done = Applier(client).apply(group_manifests(), [], "u")  # type: ignore[arg-type]
        assert "LeaderWorkerSet/vlm-group" in done.created


def test_a_live_group_costs_no_read_of_its_service():
    client = FakeClient()
    applier, wanted = Applier(client), group_manifests()  # type: ignore[arg-type]
    applier.apply(wanted, [], "u")
    client.add(service_of([]))
    assert not applier.apply(wanted, list(client.objects.values()), "u").taken


def test_a_taken_name_is_reported_with_its_owner():
    done = Applied(taken={"Service/vlm-group": ("LeaderWorkerSet", "vlm-group"), "Deployment/vlm": None})
    problem = problem_of(done, "vlm")
    assert problem.reason == "NameTaken"
    assert "Service/vlm-group exists and belongs to LeaderWorkerSet/vlm-group" in problem.message
    assert "Deployment/vlm exists and belongs to somebody else" in problem.message
    assert "delete its owner, or rename the VLMService" in problem.message


def test_a_name_that_nothing_controls_is_free_once_the_object_is_deleted():
    problem = problem_of(Applied(taken={"Service/vlm": None}), "vlm")
    assert problem.message == ("Service/vlm exists and belongs to somebody else: delete it, or rename the VLMService")


def test_leftovers_of_a_service_of_the_same_name_are_waited_for_and_need_no_deletion():
    problem = problem_of(Applied(taken={"Service/vlm": ("VLMService", "vlm")}), "vlm")
    assert "deleted VLMService" in problem.message
    assert "delete it" not in problem.message
    assert "rename" not in problem.message


def test_a_service_created_at_the_same_moment_as_the_group_is_reported():
    problem = hidden_group(GROUP, [service_of(owned_by("VLMService", "vlm-group"))])
    assert (problem.reason, "VLMService/vlm-group" in problem.message) == ("NameTaken", True)


@pytest.mark.parametrize(
    ("workload", "services"),
    [
        pytest.param(GROUP, [], id="no Service that we know"),
        pytest.param(GROUP, [service_of(owned_by("LeaderWorkerSet", "vlm-group"))], id="the group's own"),
        pytest.param(GROUP, [service_of(owned_by("VLMService", "vlm-group"), "other")], id="of another name"),
        pytest.param({**GROUP, "kind": "Deployment"}, [service_of([])], id="no group"),
        pytest.param(None, [service_of([])], id="no workload"),
    ],
)
def test_nothing_is_reported_if_the_pods_find_each_other(workload: Any, services: Any):
    assert hidden_group(workload, services) is None
