"""The operator against a real API server: what it creates, reverts, leaves alone and reports.

No kubelet and no other controller runs; tests play their part where it matters.
"""

import json
import time
from typing import Any

import pytest
from apiserver.operating import QWEN, SOON_SECONDS, TRAFFIC, Operator, World, add_node, ended, eventually

from vlm_operator.controller.service.observe import DEBOUNCE_SECONDS

NODES = ("hopper",)
pytestmark = pytest.mark.usefixtures("operator")


def test_a_new_service_has_its_objects_and_a_status_within_two_seconds(world: World):
    asked = time.monotonic()
    world.apply(workload=TRAFFIC)
    eventually(lambda: world.exists("deployment") and world.condition(), seconds=2)
    assert time.monotonic() - asked < 3
    uid = world.get("vlms")["metadata"]["uid"]
    for kind, name in (("deployment", "vlm"), ("service", "vlm"), ("configmap", f"vlm-plan-{world.plan_hash()}")):
        (owner,) = world.get(kind, name)["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["kind"], owner["controller"]) == (uid, "VLMService", True)


def test_the_service_itself_gets_no_annotation_and_no_finalizer(world: World):
    world.starts()
    metadata = world.get("vlms")["metadata"]
    assert "annotations" not in metadata
    assert "finalizers" not in metadata


def test_ready_follows_the_pods_and_its_time_moves_only_with_its_status(world: World):
    world.starts()
    world.serving()
    world.wait_for("True", "Serving")
    before = ready(world)
    world.apply(workload=TRAFFIC, replicas=2)
    eventually(lambda: ready(world)["observedGeneration"] == before["observedGeneration"] + 1)
    assert ready(world)["status"] == "True"
    assert ready(world)["lastTransitionTime"] == before["lastTransitionTime"]


def test_scaling_the_service_scales_the_deployment_and_replaces_no_pod(world: World):
    world.starts()
    before = world.plan_hash()
    world("scale", "vlms/vlm", "--replicas=3")
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 3)
    assert world.plan_hash() == before


def test_another_spec_makes_another_plan_and_an_unused_plan_is_deleted(world: World):
    world.starts()
    before = world.plan_hash()
    world.apply(workload={**TRAFFIC, "concurrency": 64})
    eventually(lambda: world.plan_hash() != before and not world.exists("configmap", f"vlm-plan-{before}"))
    labels = world.get("deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["vlmserve.dev/plan"] == world.plan_hash()
    eventually(lambda: "PlanChanged" in events(world))


def test_the_plan_of_a_pod_that_still_runs_stays(world: World):
    world.starts()
    before = world.plan_hash()
    world.pod("old", plan_hash=before)
    world.apply(workload={**TRAFFIC, "concurrency": 64})
    eventually(lambda: world.plan_hash() != before)
    assert world.exists("configmap", f"vlm-plan-{before}")
    world("delete", "pod", "old", "--force", "--grace-period=0")
    eventually(lambda: not world.exists("configmap", f"vlm-plan-{before}"))


def test_a_deleted_deployment_is_created_again(world: World):
    world.apply(workload=TRAFFIC)
    uid = eventually(lambda: world.get("deployment"))["metadata"]["uid"]
    world("delete", "deployment", "vlm")
    eventually(lambda: world.get("deployment")["metadata"]["uid"] != uid)


@pytest.mark.parametrize(
    "edit",
    [
        '[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}]',
        '[{"op": "remove", "path": "/spec/template/spec/containers/0/readinessProbe"}]',
        '[{"op": "replace", "path": "/spec/template/spec/automountServiceAccountToken", "value": true}]',
        '[{"op": "replace", "path": "/spec/replicas", "value": 7}]',
        '[{"op": "remove", "path": "/metadata/labels/vlmserve.dev~1plan"}]',
    ],
    ids=["the image", "a probe", "the token", "replicas", "a label"],
)
def test_manual_edits_are_reverted(world: World, edit: str):
    world.starts()
    before = content(world.get("deployment"))
    world("patch", "deployment", "vlm", "--type=json", "-p", edit)
    eventually(lambda: content(world.get("deployment")) == before)


def test_somebody_elses_object_of_our_name_is_left_alone_and_nothing_is_started(world: World):
    ports = {"ports": [{"port": 80}], "selector": {"app": "other"}}
    world(
        "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Service", "metadata": {"name": "vlm"}, "spec": ports}
    )
    before = world.get("service")["metadata"]["resourceVersion"]
    world.apply(workload=TRAFFIC)
    assert "Service/vlm" in world.wait_for("False", "NameTaken")
    assert world.get("service")["metadata"]["resourceVersion"] == before
    assert not world.exists("deployment")
    assert world.get("vlms")["status"]["desiredReplicas"] == 1, "one is wanted, although it may not be made"
    eventually(lambda: "NameTaken" in events(world))


def test_a_service_created_before_its_node_gets_its_plan_when_the_node_joins(world: World, kubectl: Any):
    world.apply(workload=TRAFFIC, hardware={"computeCapability": "8.9"})
    world.wait_for("Unknown", "NoNodeYet", "HardwareResolved")
    before = world.plan_hash()
    add_node(kubectl, "ada", "l40s")
    assert "L40S" in world.wait_for("True", "HardwareFound", "HardwareResolved")
    assert world.plan_hash() != before
    kubectl("delete", "node", "ada")
    world.wait_for("Unknown", "NoNodeYet", "HardwareResolved")


def test_a_nodes_heartbeat_reconciles_nothing(world: World, kubectl: Any, operator: Operator):
    world.starts()
    settle(operator)
    before = operator.metric("vlm_operator_reconciles_total")
    for beat in range(3):
        kubectl("label", "node", "hopper", "--overwrite", f"nvidia.com/gfd.timestamp={beat}")
        heartbeat = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:0{beat}Z"}]
        patch = json.dumps({"status": {"conditions": heartbeat}})
        kubectl("patch", "node", "hopper", "--subresource=status", "--type=merge", "-p", patch)
    time.sleep(1)
    assert operator.metric("vlm_operator_reconciles_total") == before


def test_a_label_that_changes_under_running_pods_is_reported_and_replaces_nothing(world: World, kubectl: Any):
    add_node(kubectl, "turing", "t4")
    world.apply(
        workload={"concurrency": 4}, hardware={"computeCapability": "7.5"}, model={**QWEN, "parametersBillion": 2}
    )
    world.wait_for("True", "HardwareFound", "HardwareResolved")
    before = world.plan_hash()
    world.pod("vlm-0", node="turing")
    world.serving()
    world.wait_for("True", "Serving")
    kubectl("label", "node", "turing", "--overwrite", "nvidia.com/gpu.product=Tesla-T4-SHARED")
    time.sleep(1)
    assert world.condition("HardwareDrift")[:2] == ("False", "NoDrift"), "told before it has lasted"
    told = world.wait_for("True", "LabelsChanged", "HardwareDrift", seconds=2 * DEBOUNCE_SECONDS + SOON_SECONDS)
    assert "nvidia.com/gpu.product" in told
    assert world.plan_hash() == before
    assert world.condition()[0] == "True"
    kubectl("delete", "node", "turing")


def test_a_refused_change_leaves_the_running_pods_alone(world: World):
    world.starts()
    world.serving()
    world.wait_for("True", "Serving")
    before = world.get("deployment")["metadata"]["generation"]
    world.apply(model={**QWEN, "uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct", "parametersBillion": 235})
    assert "still available" in world.wait_for("False", "ModelDoesNotFit")
    assert world.get("deployment")["metadata"]["generation"] == before
    assert world.condition("Available")[0] == "True"


def test_while_a_change_is_refused_running_pods_can_still_be_scaled_and_stopped(world: World):
    world.starts()
    template = world.get("deployment")["spec"]["template"]
    too_large = {**QWEN, "uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct", "parametersBillion": 235}

    def count() -> int:
        return world.get("deployment")["spec"]["replicas"]

    for refused, reason in (
        ({"model": too_large}, "ModelDoesNotFit"),
        ({"engine": {"settings": {"prefil_decode_interval": 10}}}, "InvalidSpec"),
    ):
        world.apply(workload=TRAFFIC, replicas=3, **refused)
        world.wait_for("False", reason)
        eventually(lambda: count() == 3)
        world.apply(workload=TRAFFIC, suspend=True, **refused)
        eventually(lambda: count() == 0)
        world.apply(workload=TRAFFIC, scaling={"maxReplicas": 3}, **refused)
        eventually(lambda: world.exists("hpa"))
        world.apply(workload=TRAFFIC, **refused)
        eventually(lambda: not world.exists("hpa"))
        assert world.condition()[:2] == ("False", reason)
    assert world.get("deployment")["spec"]["template"] == template


def test_what_the_api_server_refuses_is_in_the_status(world: World):
    world.apply(template={"spec": {"restartPolicy": "Never"}})
    assert "restartPolicy" in world.wait_for("False", "NotApplied")


def test_an_admission_webhook_that_is_down_is_in_the_status_until_it_is_removed(world: World, kubectl: Any):
    nowhere = {"url": "https://127.0.0.1:9/deny"}
    rule = {"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": world.namespace},
        "webhooks": [
            {
                "name": "deny.example.com",
                "clientConfig": nowhere,
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    world("apply", "-f", "-", stdin=webhook)
    try:
        asking = ("create", "deployment", "x", "--image=x", "--dry-run=server", "-n", world.namespace)
        # The API server needs a moment to know of it.
        eventually(lambda: "deny.example.com" in kubectl.attempt(*asking).stderr, seconds=20)
        world.apply(workload=TRAFFIC)
        assert "deny.example.com" in world.wait_for("False", "NotApplied", seconds=30)
    finally:
        world("delete", "validatingwebhookconfiguration", world.namespace)
    world.wait_for("False", "Starting", seconds=60)


def test_several_nodes_without_the_leader_worker_set_controller_are_refused(world: World):
    world.apply(parallelism={"tensor": 16}, multinode={"nodeCount": 2})
    world.wait_for("False", "LeaderWorkerSetMissing")
    assert not world.exists("service")


def test_a_container_s_termination_message_is_in_the_status_and_its_log_is_not(world: World):
    world.starts()
    words = json.dumps({"reason": "OutOfDeviceMemory", "message": "24 MiB were missing on GPU 0"})
    world.pod("said", node="hopper", phase="Running", containerStatuses=ended(words))
    assert "24 MiB" in world.wait_for("False", "OutOfDeviceMemory")
    world("delete", "pod", "said", "--force", "--grace-period=0")
    world.pod("unsaid", node="hopper", phase="Running", containerStatuses=ended("boom: token hf_secret"))
    assert "kubectl logs unsaid" in world.wait_for("False", "ContainerEnded")
    assert "hf_secret" not in json.dumps(world.get("vlms"))
    assert "hf_secret" not in events(world)


def test_a_pod_that_got_other_hardware_leads_to_a_new_plan(world: World, kubectl: Any):
    add_node(kubectl, "liar", "t4")
    small = {**QWEN, "parametersBillion": 2}
    world.apply(workload={"concurrency": 4}, hardware={"computeCapability": "7.5"}, model=small)
    world.wait_for("True", "HardwareFound", "HardwareResolved")
    before = world.plan_hash()
    world.pod("vlm-0", node="liar")
    kubectl("label", "node", "liar", "--overwrite", "nvidia.com/gpu.memory=16384")
    world.apply(workload={"concurrency": 4}, hardware={"computeCapability": "7.5"}, model=small, replicas=1)
    assert world.plan_hash() == before
    words = json.dumps({"reason": "HardwareMismatch", "message": "the GPU has 16384 MiB"})
    world.status_of("pod", "vlm-0", phase="Running", containerStatuses=ended(words))
    eventually(lambda: world.plan_hash() != before)
    kubectl("delete", "node", "liar")


def ready(world: World) -> dict[str, Any]:
    conditions = world.get("vlms")["status"]["conditions"]
    return dict(next(c for c in conditions if c["type"] == "Ready"))


def content(deployment: dict[str, Any]) -> tuple[Any, Any]:
    return deployment["spec"], deployment["metadata"]["labels"]


def events(world: World) -> str:
    return world("get", "events.events.k8s.io", "-o", "json")


def settle(operator: Operator) -> None:
    """Waits until the operator has nothing to do."""

    def quiet() -> bool:
        before = operator.metric("vlm_operator_reconciles_total")
        time.sleep(0.5)
        return operator.metric("vlm_operator_reconciles_total") == before

    eventually(quiet, seconds=15)
