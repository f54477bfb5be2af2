"""What a plan is made with: claims that several pods share are read where they can be, and no plan waits for them."""

from __future__ import annotations

from typing import Any

import pytest
from unit.controller.fakes import FakeClient
from unit.plan.builders import QWEN3_VL, RUNTIME_IMAGE, node, service

from vlm_api.plan import ServingPlan
from vlm_operator.controller.choosing import Chooser, Pods
from vlm_operator.controller.inspecting import Inspector
from vlm_operator.controller.inventory import Inventory
from vlm_operator.controller.usage import Usage
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.kinds import Kind
from vlm_operator.profiles import shipped

RAW: dict[str, Any] = {"metadata": {"name": "qwen3-vl", "namespace": "default", "uid": "u"}}
CLAIM = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "weights", "namespace": "default"},
    "spec": {"accessModes": ["ReadWriteOncePod"]},
}


class Claims(FakeClient):
    """Answers for claims with an error where there is one, and counts how often it was asked."""

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
    inventory.see_node(node(), deleted=False)
    chooser = Chooser(client, inventory, Usage(client), Inspector(client, "x"), RUNTIME_IMAGE, shipped())  # type: ignore[arg-type]
    stored, _ = chooser.choose(service(model=QWEN3_VL | {"cacheClaim": "weights"}, **spec), RAW, [], [], Pods([], []))
    assert stored is not None
    return stored.plan


def test_a_claim_for_one_pod_refuses_a_second_one():
    assert [f.reason for f in chosen(Claims(), replicas=2).errors] == ["ClaimForOnePod"]


@pytest.mark.parametrize("error", [ApiError(403, "Forbidden", "no right"), ApiError(500, "Unknown", "etcd is away")])
def test_without_the_right_to_read_a_claim_the_plan_is_made_all_the_same(error):
    made = chosen(Claims(error), replicas=2)
    assert not made.errors
    assert "ClaimNotChecked" in [f.reason for f in made.findings]


def test_nobody_asks_for_the_claim_of_a_pod_that_is_alone():
    client = Claims()
    assert not chosen(client).errors
    assert client.asked == 0
