"""Devices that other pods use."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from unit.controller.fakes import FakeClient

from vlm_operator.controller.service.usage import FRESH_SECONDS, Usage
from vlm_operator.kube.client import ApiError


def running(name: str, gpus: int, namespace: str = "other", service: str = "", init: int = 0) -> dict[str, Any]:
    def container(number: int) -> dict[str, Any]:
        return {"resources": {"limits": {"nvidia.com/gpu": str(number)}}}

    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"vlmserve.dev/service": service}},
        "spec": {"nodeName": "n", "containers": [container(gpus)], "initContainers": [container(init)]},
    }


def test_devices_of_others_are_counted_and_the_services_own_are_not():
    client = FakeClient()
    for pod in (running("a", 2), running("b", 1, init=3), running("own", 4, "default", "vlm")):
        client.add(pod)
    assert Usage(client).of("nvidia.com/gpu", "default", "vlm") == {"n": 5}
    assert Usage(client).of("nvidia.com/gpu", "other", "vlm") == {"n": 9}
    assert Usage(client).of("amd.com/gpu", "other", "vlm") == {}


class Reads(FakeClient):
    """Lists pods as ``during`` lets it, and counts how often."""

    def __init__(self, during: Callable[[str | None], Any] = lambda namespace: None) -> None:
        super().__init__()
        self.during, self.reads = during, 0

    def list(self, kind: Any, namespace: str | None = None, **more: Any) -> Any:
        self.reads += 1
        self.during(namespace)
        return super().list(kind, namespace, **more)


def test_what_was_read_just_now_is_not_read_again():
    client, now = Reads(), [0.0]
    usage = Usage(client, clock=lambda: now[0])
    assert usage.of("nvidia.com/gpu", "default", "vlm") == {}
    usage.of("nvidia.com/gpu", "default", "other")
    assert client.reads == 1
    now[0] += FRESH_SECONDS + 1
    usage.of("nvidia.com/gpu", "default", "vlm")
    assert client.reads == 2


def test_where_reading_the_cluster_s_pods_takes_long_it_is_done_less_often():
    now = [0.0]
    client = Reads(lambda _: now.__setitem__(0, now[0] + 4.0))
    usage = Usage(client, clock=lambda: now[0])
    while now[0] < 400:
        usage.of("nvidia.com/gpu", "default", "vlm")
        now[0] += 1.0
    assert 9 <= client.reads <= 10


def test_services_that_plan_at_the_same_time_read_the_cluster_s_pods_once():
    client = Reads(lambda _: time.sleep(0.1))
    usage = Usage(client)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: usage.of("nvidia.com/gpu", "default", f"vlm-{n}"), range(4)))
    assert found == [{}] * 4
    assert client.reads == 1


def test_a_failed_read_is_tried_again_by_the_next_plan():
    client = Reads()
    client.broken = ApiError(500, "InternalError", "no")
    usage = Usage(client)
    with pytest.raises(ApiError):
        usage.of("nvidia.com/gpu", "default", "vlm")
    client.broken = None
    assert usage.of("nvidia.com/gpu", "default", "vlm") == {}


def test_an_operator_of_a_few_namespaces_counts_what_it_may_see():
    def forbid(namespace: str | None) -> None:
        if namespace in (None, "gone"):
            raise ApiError(403, "Forbidden", "no")

    client = Reads(forbid)
    client.add(running("a", 2, "mine"))
    client.add(running("b", 2, "theirs"))
    assert dict(Usage(client, ["mine"]).of("nvidia.com/gpu", "x", "y")) == {"n": 2}
    assert dict(Usage(client, ["gone", "mine"]).of("nvidia.com/gpu", "x", "y")) == {"n": 2}
    with pytest.raises(ApiError):
        Usage(client).of("nvidia.com/gpu", "x", "y")
