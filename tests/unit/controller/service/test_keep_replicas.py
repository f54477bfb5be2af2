"""Whether a workload keeps the number of replicas that an autoscaler has set."""

from typing import Any

import pytest
from unit.manifests.samples import service
from unit.plan.builders import request_of

from vlm_api.status import VLMService
from vlm_operator.controller.service.act import LAST_APPLIED, keep_replicas
from vlm_operator.controller.service.gather import LivePool

WANTED = [{"kind": "Deployment", "metadata": {"name": "vlm"}, "spec": {"replicas": 1, "paused": False}}]


def live(**holder: str) -> dict[str, Any]:
    entry = {**holder, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return {"kind": "Deployment", "metadata": {"name": "vlm", "managedFields": [entry]}, "spec": {"replicas": 3}}


def kept(found: dict[str, Any], of: VLMService, autoscaler: dict[str, Any] | None = None) -> dict[str, Any]:
    (manifest,) = keep_replicas(WANTED, LivePool(request_of(of), workload=found, autoscaler=autoscaler), of)
    return dict(manifest["spec"])


def counts(found: dict[str, Any], **spec: Any) -> Any:
    return kept(found, service(**spec)).get("replicas")


def entry(operation: str, *fields: str) -> dict[str, Any]:
    return {"manager": "m", "operation": operation, "fieldsV1": {"f:spec": {f: {} for f in fields}}}


HANDED_OVER = live(manager="vlm-operator-handover")
AUTOSCALER = {"kind": "HorizontalPodAutoscaler"}


def test_a_number_that_an_autoscaler_left_stays_while_the_spec_sets_none():
    assert counts(HANDED_OVER) is None
    assert counts(live(manager="vlm-operator")) == 1
    assert "replicas" not in kept(live(manager="other"), service(), AUTOSCALER)
    assert WANTED[0]["spec"]["replicas"] == 1  # type: ignore[index]


def test_a_number_that_was_edited_by_hand_is_reset_to_the_spec():
    assert counts(live(manager="kubectl-edit")) == 1


@pytest.mark.parametrize("spec", [{"replicas": 2}, {"suspend": True}])
def test_a_number_in_the_spec_is_always_applied(spec):
    assert counts(HANDED_OVER, **spec) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        {"managedFields": [entry("Apply", "f:replicas", "f:model")]},
        {"managedFields": [entry("Update", "f:model"), entry("Update", "f:replicas")]},
        {"annotations": {LAST_APPLIED: '{"spec": {"replicas": 1}}'}},
    ],
    ids=["server-side", "a change", "client-side"],
)
def test_one_replica_that_somebody_has_applied_is_not_a_default(metadata):
    of = service(replicas=1)
    of.metadata.update(metadata)
    assert kept(HANDED_OVER, of).get("replicas") == 1


def test_the_default_of_whoever_created_the_service_does_not_count_as_set():
    of = service(replicas=1)
    of.metadata["managedFields"] = [entry("Update", "f:replicas", "f:model", "f:workload")]
    assert kept(HANDED_OVER, of).get("replicas") is None
    of.metadata["annotations"] = {LAST_APPLIED: '{"spec": {}}'}
    assert kept(HANDED_OVER, of).get("replicas") is None
    # A later scaling is an entry beside what was applied.
    of.metadata["managedFields"].append(entry("Update", "f:replicas"))
    assert kept(HANDED_OVER, of).get("replicas") == 1
