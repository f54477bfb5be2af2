"""What the operator does is seen in its own metrics."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.operating import Operator, World, eventually
from monitoring.promtool import complaints

# Nothing here is about speed.
SECONDS = 30.0


@pytest.fixture
def operator(api_server: Any, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    log = tmp_path / "operator.log"
    made = Operator(api_server.kubeconfig, log, "--namespace", namespace, "--no-leader-election", namespace=namespace)
    yield made.start()
    if made.running:
        made.stop()


def test_a_service_leaves_its_mark_from_the_event_to_the_requests(
    operator: Operator, kubectl: Any, namespace: str
) -> None:
    world = World(kubectl, namespace)
    world.apply(workload={"concurrency": 4})
    eventually(lambda: world.condition()[:2] == ("False", "Starting"), seconds=SECONDS)
    eventually(lambda: operator.metric("vlm_operator_event_to_applied_seconds_count") >= 1, seconds=SECONDS)
    assert operator.metric("vlm_operator_event_to_applied_seconds_sum") > 0
    assert operator.metric("vlm_operator_reconciles_total", 'result="success"') >= 1
    assert operator.metric("vlm_operator_api_requests_total", 'verb="create"') >= 3
    assert operator.metric("vlm_operator_api_request_seconds_count", 'verb="create"') >= 3
    eventually(
        lambda: operator.metric("vlm_operator_services", 'condition="Ready",reason="Starting"') == 1, seconds=SECONDS
    )
    assert operator.metric("vlm_operator_leader") == 1
    assert complaints(operator.get("/metrics")) == []


def test_a_service_that_goes_is_counted_no_more(operator: Operator, kubectl: Any, namespace: str) -> None:
    world = World(kubectl, namespace)
    world.apply(workload={"concurrency": 4})
    eventually(lambda: operator.metric("vlm_operator_services", 'condition="Ready"') == 1, seconds=SECONDS)
    world("delete", "vlms", "vlm")
    eventually(lambda: operator.metric("vlm_operator_services", 'condition="Ready"') == 0, seconds=SECONDS)
