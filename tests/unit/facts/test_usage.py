"""Devices that pods request, also from invalid lists of pods."""

from typing import Any

import pytest

from vlm_operator.facts.nodes.devices_in_use import asking, in_use

GPU = "nvidia.com/gpu"


def pod(**changes: Any) -> dict[str, Any]:
    spec = {
        "nodeName": "n",
        "containers": [{"resources": {"limits": {GPU: "2"}}}, {"resources": {"requests": {GPU: 1}}}],
    }
    return {"kind": "Pod", "metadata": {"namespace": "x"}, "spec": spec} | changes


def used(*pods: dict[str, Any]) -> dict[str, int]:
    return in_use(asking(pods), GPU, "default", "vlm")


def test_requests_of_containers_are_summed():
    assert used(pod(), pod()) == {"n": 6}


def test_a_completed_pod_holds_no_devices():
    assert used(pod(status={"phase": "Succeeded"})) == {}


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
def test_an_invalid_pod_raises_no_error(odd):
    assert used(pod(**odd)).get("n", 0) in (0, 3)


def test_an_init_container_may_request_more_than_all_containers():
    spec = {"nodeName": "n", "containers": [{"resources": {"limits": {GPU: "2"}}}]}
    for number, most in ((1, 2), (3, 3)):
        spec["initContainers"] = [{"resources": {"limits": {GPU: str(number)}}}]
        assert used(pod(spec=spec)) == {"n": most}


def test_only_the_service_s_own_pods_are_excluded():
    own = pod(metadata={"namespace": "default", "labels": {"vlmserve.dev/service": "vlm"}})
    other = pod(metadata={"namespace": "other", "labels": {"vlmserve.dev/service": "vlm"}})
    assert used(own) == {}
    assert used(own, other) == {"n": 3}


def test_pods_without_devices_are_not_kept():
    plain = {"spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}
    odd = {"spec": {"nodeName": "n", "containers": [{}, None, {"resources": None}]}}
    waiting = pod(spec={"containers": [{"resources": {"limits": {GPU: "2"}}}]})
    assert list(asking([plain, odd, waiting, pod(status={"phase": "Failed"})])) == []
    plain["spec"]["initContainers"] = [{"resources": {"limits": {GPU: "1"}}}]
    (kept,) = asking([plain])
    assert kept.devices == {GPU: 1}
