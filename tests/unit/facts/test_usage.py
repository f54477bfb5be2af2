"""Devices that pods have asked for, whatever stands in a list of pods."""

from __future__ import annotations

from typing import Any

import pytest

from vlm_operator.facts.usage import asks_for_devices, in_use, reduced

GPU = "nvidia.com/gpu"


def pod(**changes: Any) -> dict[str, Any]:
    spec = {
        "nodeName": "n",
        "containers": [{"resources": {"limits": {GPU: "2"}}}, {"resources": {"requests": {GPU: 1}}}],
    }
    return {"kind": "Pod", "metadata": {"namespace": "x"}, "spec": spec} | changes


def test_containers_add_up():
    assert in_use([pod(), pod()], GPU, "default", "vlm") == {"n": 6}


def test_a_pod_that_has_ended_holds_nothing():
    assert in_use([pod(status={"phase": "Succeeded"})], GPU, "default", "vlm") == {}


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": ["x"]},
        {"metadata": {"labels": "x"}, "status": 1},
        {"spec": "x"},
        {"spec": {"nodeName": ["n"]}},
        {"spec": {"nodeName": "n", "containers": {"a": 1}, "initContainers": ["x"]}},
        {"spec": {"nodeName": "n", "containers": [{"resources": {"limits": {GPU: "²"}}}]}},
    ],
)
def test_a_pod_that_is_not_as_documented_raises_nothing(odd):
    assert in_use([pod(**odd)], GPU, "default", "vlm")["n"] in (0, 3)


@pytest.mark.parametrize("more", [{}, {"status": {"phase": "Succeeded"}}, {"metadata": {"name": "p"}}])
def test_as_much_as_is_kept_of_a_pod_says_the_same(more):
    whole = pod(**more)
    for namespace, service in (("default", "vlm"), ("other", "x")):
        assert in_use([reduced(whole)], GPU, namespace, service) == in_use([whole], GPU, namespace, service)


def test_pods_that_ask_for_no_device_are_none_of_this():
    assert asks_for_devices(pod())
    plain = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}
    assert not asks_for_devices(plain)
    plain["spec"]["initContainers"] = [{"resources": {"limits": {GPU: "1"}}}]
    assert asks_for_devices(plain)
    assert not asks_for_devices({"spec": {"containers": [{}, None, {"resources": None}]}})
