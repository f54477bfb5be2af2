"""Pods in few words."""

import json
from typing import Any

import pytest

from vlm_api.names import INSTALL_CONTAINER
from vlm_operator.controller.status.pods import view


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


def test_a_pod_without_status_is_neither_ready_nor_failed():
    seen = view({"metadata": {"name": "vlm-0"}})
    assert not any((seen.ready, seen.running, seen.failure, seen.unschedulable, seen.node))


def waits(reason: str, message: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


OUT_OF_MEMORY = json.dumps({"reason": "OutOfDeviceMemory", "message": "buy more"})
MISMATCH = main(
    state=waits("CrashLoopBackOff", "back-off 5m"),
    lastState=ended(json.dumps({"reason": "HardwareMismatch", "message": "m"})),
)
NO_SECRET = 'secret "hf" not found'
CRASHED = [
    {"name": "fetch", "restartCount": 3, "state": waits("CrashLoopBackOff", "back-off"), "lastState": ended(code=7)}
]
CRASHED_SAYS = ("container fetch ended (exit code 7", "kubectl logs vlm-0 -c fetch --previous")
# What happened -> (the pod's status, the reason, parts of the message)
FAILED: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "the runtime says why": (
        {"containerStatuses": main(state=ended(OUT_OF_MEMORY))},
        "OutOfDeviceMemory",
        ("buy more",),
    ),
    "it said why before its next start": ({"containerStatuses": MISMATCH}, "HardwareMismatch", ("m",)),
    "log lines are never taken over": (
        {"containerStatuses": main(state=ended("Authorization: Bearer hf_secret"))},
        "ContainerEnded",
        ("exit code 1", "kubectl logs vlm-0 -c main --previous"),
    ),
    "the kernel's out-of-memory killer": (
        {"containerStatuses": main(state=ended(code=137, reason="OOMKilled"))},
        "OutOfHostMemory",
        (),
    ),
    **{
        f"the kubelet: {reason}": (
            {"containerStatuses": main(state=waits(reason, NO_SECRET))},
            reason,
            (f"pod vlm-0, container main: {NO_SECRET}",),
        )
        for reason in ("ImagePullBackOff", "CreateContainerConfigError", "InvalidImageName")
    },
    "the user's init container": ({"initContainerStatuses": CRASHED}, "ContainerEnded", CRASHED_SAYS),
    "the user's container": ({"containerStatuses": CRASHED}, "ContainerEnded", CRASHED_SAYS),
    "the runtime is not installed": (
        {"initContainerStatuses": [{"name": INSTALL_CONTAINER, "state": ended("hf_secret in a log", code=3)}]},
        "InstallFailed",
        (),
    ),
    "an eviction": (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        "Evicted",
        ("pod vlm-0: Evicted: The node was low on resource: memory.",),
    ),
}


@pytest.mark.parametrize(("status", "reason", "says"), FAILED.values(), ids=FAILED.keys())
def test_a_failure_has_its_reason_and_a_message(status, reason, says):
    found, message = failure(**status) or ("", "")
    assert found == reason
    assert [part for part in says if part not in message] == []
    assert "hf_secret" not in message


def test_a_hardware_mismatch_is_known_as_one():
    assert view(pod(containerStatuses=MISMATCH)).mismatch


RUNS: dict[str, Any] = {"state": {"running": {}}, "lastState": ended()}
DONE = {"name": "fetch", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}, "lastState": ended()}


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": [*main(state={"running": {}}), {"name": "proxy", "restartCount": 1, **RUNS}]},
        {"initContainerStatuses": [DONE]},
        {"initContainerStatuses": [{**DONE, "name": INSTALL_CONTAINER}]},
        {"containerStatuses": main(state=ended(code=0, reason="Completed"))},
        {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": main(**RUNS)},
    ],
    ids=["a sidecar that restarted", "an init container", "the installation", "an end without error", "ready again"],
)
def test_what_runs_or_has_succeeded_has_not_failed(status):
    assert failure(**status) is None


def test_an_image_pull_that_is_retried_has_the_same_message_each_time():
    words = 'failed to resolve image: Head "https://r.example/v2/x": dial tcp: read udp {}->10.0.0.53:53: i/o timeout'
    tries = [
        {"reason": "ErrImagePull", "message": words.format("10.99.0.2:50123")},
        {
            "reason": "ImagePullBackOff",
            "message": f'Back-off pulling image "r.example/x:1": ErrImagePull: {words.format("10.99.0.2:50123")}',
        },
        {"reason": "ErrImagePull", "message": words.format("10.99.0.2:41999")},
    ]
    failures = {failure(containerStatuses=main(state={"waiting": one})) for one in tries}
    ((reason, message),) = failures
    assert reason == "ImagePullBackOff"
    assert "read udp 10.0.0.53:53: i/o timeout" in message


def test_only_the_scheduler_makes_a_pod_unschedulable():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    assert view(pod(conditions=[condition])).unschedulable == "0/1 nodes"
    gated = {**condition, "reason": "SchedulingGated"}
    assert view(pod(conditions=[gated])).unschedulable is None


def test_workers_of_a_group_are_not_leaders():
    follower = pod()
    follower["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/worker-index"] = "1"
    assert not view(follower).leader
    assert view(pod()).leader


def test_a_pod_that_has_a_node_and_no_container_yet_is_pulling():
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    waiting = [{"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}]
    pod_view = view(pod(conditions=[scheduled], containerStatuses=waiting))
    assert pod_view.pulling
    assert (pod_view.scheduled_at, pod_view.started_at) == ("2026-01-01T00:00:00Z", None)
    running = [{"name": "main", "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:01:40Z"}}}]
    pod_view = view(pod(conditions=[scheduled], containerStatuses=running))
    assert not pod_view.pulling
    assert pod_view.started_at == "2026-01-01T00:01:40Z"
    for never in (
        pod(conditions=[scheduled], containerStatuses=main(state={"waiting": {"reason": "CrashLoopBackOff"}})),
        pod(containerStatuses=main(state={"waiting": {"reason": "ImagePullBackOff"}})),
        {"metadata": {"name": "without-a-node"}, "status": {"conditions": [scheduled | {"status": "False"}]}},
    ):
        assert not view(never).pulling
