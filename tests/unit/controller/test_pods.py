"""Pods in few words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vlm_api.names import INSTALL_CONTAINER
from vlm_operator.controller.pods import view


def pod(**status: Any) -> dict[str, Any]:
    labels = {"vlmserve.dev/plan": "abc"}
    return {"metadata": {"name": "vlm-0", "uid": "u", "labels": labels}, "spec": {"nodeName": "n"}, "status": status}


def main(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "restartCount": 2, **state}]


def ended(message: str = "", code: int = 1, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def failure(**status: Any) -> tuple[str, str] | None:
    found = view(pod(**status)).failure
    return None if found is None else (found.reason, found.message)


def test_a_pod_that_says_nothing_yet_is_neither_ready_nor_failed():
    seen = view({"metadata": {"name": "vlm-0"}})
    assert (seen.ready, seen.running, seen.failure, seen.unschedulable, seen.node) == (False, False, None, None, None)


def test_the_runtimes_last_words_are_taken_over():
    words = json.dumps({"reason": "OutOfDeviceMemory", "message": "buy more"})
    assert failure(containerStatuses=main(state=ended(words))) == ("OutOfDeviceMemory", "buy more")


def test_they_are_remembered_while_the_container_waits_for_its_next_start():
    words = json.dumps({"reason": "HardwareMismatch", "message": "m"})
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m"}}
    status = main(state=waiting, lastState=ended(words))
    assert failure(containerStatuses=status) == ("HardwareMismatch", "m")
    assert view(pod(containerStatuses=status)).mismatch


def test_log_lines_in_a_termination_message_are_never_taken_over():
    reason, message = failure(containerStatuses=main(state=ended("Authorization: Bearer hf_secret"))) or ("", "")
    assert reason == "ContainerEnded"
    assert "hf_secret" not in message
    assert "exit code 1" in message
    assert "kubectl logs vlm-0 -c main --previous" in message


def test_the_kernels_out_of_memory_killer_is_named():
    assert (failure(containerStatuses=main(state=ended(code=137, reason="OOMKilled"))) or ("",))[0] == "OutOfHostMemory"


@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CreateContainerConfigError", "InvalidImageName"])
def test_a_container_that_cannot_start_says_so_in_the_kubelets_words(reason):
    waiting = {"waiting": {"reason": reason, "message": 'secret "hf" not found'}}
    assert failure(containerStatuses=main(state=waiting)) == (
        reason,
        'pod vlm-0, container main: secret "hf" not found',
    )


def test_a_container_of_the_users_that_keeps_the_pod_from_serving_is_named():
    other = [{"name": "fetch", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
    crashed = [{**other[0], "lastState": ended(code=7)}]
    reason, message = failure(initContainerStatuses=crashed) or ("", "")
    assert reason == "ContainerEnded"
    assert "container fetch ended (exit code 7" in message
    assert "kubectl logs vlm-0 -c fetch --previous" in message
    assert failure(containerStatuses=crashed) == (reason, message)
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": "no such key"}}
    assert failure(containerStatuses=[{"name": "proxy", "state": waiting}]) == (
        "CreateContainerConfigError",
        "pod vlm-0, container proxy: no such key",
    )


def test_a_container_of_the_users_that_ended_once_and_runs_again_is_no_failure():
    again = {"name": "proxy", "restartCount": 1, "state": {"running": {}}, "lastState": ended(code=1)}
    assert failure(containerStatuses=[*main(state={"running": {}}), again]) is None


def test_a_container_that_is_through_with_its_work_has_not_failed_though_it_did_before():
    fetched = {"name": "fetch", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}, "lastState": ended(code=1)}
    installed = {**fetched, "name": "vlm-runtime-install"}
    assert failure(initContainerStatuses=[fetched]) is None
    assert failure(initContainerStatuses=[{**installed, "name": INSTALL_CONTAINER}]) is None


def test_an_image_that_is_tried_again_and_again_is_told_in_the_same_words_each_time():
    said = 'failed to resolve image: Head "https://r.example/v2/x": dial tcp: read udp {}->10.0.0.53:53: i/o timeout'
    tries = [
        {"reason": "ErrImagePull", "message": said.format("10.99.0.2:50123")},
        {
            "reason": "ImagePullBackOff",
            "message": f'Back-off pulling image "r.example/x:1": ErrImagePull: {said.format("10.99.0.2:50123")}',
        },
        {"reason": "ErrImagePull", "message": said.format("10.99.0.2:41999")},
    ]
    told = {failure(containerStatuses=main(state={"waiting": one})) for one in tries}
    ((reason, message),) = told
    assert reason == "ImagePullBackOff"
    assert "read udp 10.0.0.53:53: i/o timeout" in message


def test_a_runtime_that_could_not_be_installed_is_named():
    install = [{"name": "install-runtime", "state": ended("secret in a log", code=3)}]
    reason, message = failure(initContainerStatuses=install) or ("", "")
    assert reason == "InstallFailed"
    assert "secret" not in message


def test_an_evicted_pod_says_why():
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    assert failure(**status) == ("Evicted", "pod vlm-0: Evicted: The node was low on resource: memory.")


def test_a_container_that_ended_well_or_is_ready_again_has_not_failed():
    assert failure(containerStatuses=main(state=ended(code=0, reason="Completed"))) is None
    ready = [{"type": "Ready", "status": "True"}]
    assert failure(conditions=ready, containerStatuses=main(state={"running": {}}, lastState=ended())) is None


def test_only_the_scheduler_makes_a_pod_unschedulable():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    assert view(pod(conditions=[condition])).unschedulable == "0/1 nodes"
    gated = {**condition, "reason": "SchedulingGated"}
    assert view(pod(conditions=[gated])).unschedulable is None


def test_followers_of_a_group_are_told_apart():
    follower = pod()
    follower["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] = "1"
    assert not view(follower).leader
    assert view(pod()).leader


def test_a_pod_that_has_a_node_and_no_container_yet_is_pulling():
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    waiting = [{"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}]
    seen = view(pod(conditions=[scheduled], containerStatuses=waiting))
    assert seen.pulling
    assert (seen.scheduled_at, seen.started_at) == ("2026-01-01T00:00:00Z", None)
    running = [{"name": "main", "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:01:40Z"}}}]
    seen = view(pod(conditions=[scheduled], containerStatuses=running))
    assert not seen.pulling
    assert seen.started_at == "2026-01-01T00:01:40Z"
    for never in (
        pod(conditions=[scheduled], containerStatuses=main(state={"waiting": {"reason": "CrashLoopBackOff"}})),
        pod(containerStatuses=main(state={"waiting": {"reason": "ImagePullBackOff"}})),
        {"metadata": {"name": "without-a-node"}, "status": {"conditions": [scheduled | {"status": "False"}]}},
    ):
        assert not view(never).pulling
