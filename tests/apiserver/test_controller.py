"""The operator against a real API server: what it makes, mends, leaves alone and says.

No kubelet and no other controller runs; tests play their part where it matters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.operating import QWEN, SOON_SECONDS, Operator, World, add_node, ended, eventually

from vlm_operator.controller.lasting import DEBOUNCE_SECONDS

TRAFFIC = {"concurrency": 400, "images": {"width": 512, "height": 512}}


@pytest.fixture(scope="module")
def operator(api_server: Any, kubectl: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    add_node(kubectl, "hopper", "h100")
    started = Operator(api_server.kubeconfig, tmp_path_factory.mktemp("operator") / "log").start()
    yield started
    code = started.stop()
    assert code == 0, started.said()
    assert "Traceback" not in started.said()
    kubectl("delete", "node", "hopper")


@pytest.fixture
def world(operator: Operator, kubectl: Any, namespace: str) -> World:
    return World(kubectl, namespace)


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
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    metadata = world.get("vlms")["metadata"]
    assert "annotations" not in metadata
    assert "finalizers" not in metadata


def test_the_profile_of_the_clusters_gpus_reaches_the_plan_and_the_pods_are_held_to_them(world: World):
    world.apply(workload=TRAFFIC)
    assert "H100" in world.wait_for("True", "HardwareFound", "HardwareResolved")
    settings = {s["name"]: s for s in world.get("vlms")["status"]["plan"]["settings"]}
    assert settings["mm_feature_transport"]["value"] == "cuda_ipc"
    affinity = world.get("deployment")["spec"]["template"]["spec"]["affinity"]
    assert "nvidia.com/gpu" in json.dumps(affinity)


def test_ready_follows_the_pods_and_its_time_moves_only_with_its_status(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    world.serving()
    world.wait_for("True", "Serving")
    before = ready(world)
    world.apply(workload=TRAFFIC, replicas=2)
    eventually(lambda: ready(world)["observedGeneration"] == before["observedGeneration"] + 1)
    assert ready(world)["status"] == "True"
    assert ready(world)["lastTransitionTime"] == before["lastTransitionTime"]


def test_scaling_the_service_scales_the_deployment_and_replaces_no_pod(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    before = world.plan_hash()
    world("scale", "vlms/vlm", "--replicas=3")
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 3)
    assert world.plan_hash() == before


def test_another_wish_makes_another_plan_and_the_plan_that_nobody_runs_goes(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    before = world.plan_hash()
    world.apply(workload={**TRAFFIC, "concurrency": 64})
    eventually(lambda: world.plan_hash() != before and not world.exists("configmap", f"vlm-plan-{before}"))
    labels = world.get("deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["vlmserve.dev/plan"] == world.plan_hash()
    eventually(lambda: "PlanChanged" in events(world))


def test_the_plan_of_a_pod_that_still_runs_stays(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    before = world.plan_hash()
    world.pod("old", plan_hash=before)
    world.apply(workload={**TRAFFIC, "concurrency": 64})
    eventually(lambda: world.plan_hash() != before)
    assert world.exists("configmap", f"vlm-plan-{before}")
    world("delete", "pod", "old", "--force", "--grace-period=0")
    eventually(lambda: not world.exists("configmap", f"vlm-plan-{before}"))


def test_a_deleted_deployment_comes_back(world: World):
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
def test_what_is_edited_by_hand_is_mended(world: World, edit: str):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    before = content(world.get("deployment"))
    world("patch", "deployment", "vlm", "--type=json", "-p", edit)
    eventually(lambda: content(world.get("deployment")) == before)


def test_what_others_add_to_our_objects_is_left_alone(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    world("annotate", "deployment", "vlm", "team=vision")
    world("scale", "vlms/vlm", "--replicas=2")
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 2)
    assert world.get("deployment")["metadata"]["annotations"]["team"] == "vision"


def test_a_variable_that_is_no_longer_wanted_is_taken_out_of_the_pods(world: World):
    def names() -> list[str]:
        return [e["name"] for e in world.get("deployment")["spec"]["template"]["spec"]["containers"][0]["env"]]

    world.apply(workload=TRAFFIC, engine={"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]})
    eventually(lambda: "NCCL_DEBUG" in names())
    world.apply(workload=TRAFFIC)
    eventually(lambda: "NCCL_DEBUG" not in names())
    eventually(lambda: "NCCL_DEBUG" not in world.get("vlms")["status"]["plan"]["engine"]["env"])


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


def test_a_service_that_was_there_before_its_node_gets_its_plan_when_the_node_comes(world: World, kubectl: Any):
    world.apply(workload=TRAFFIC, hardware={"computeCapability": "8.9"})
    world.wait_for("Unknown", "NoNodeYet", "HardwareResolved")
    before = world.plan_hash()
    add_node(kubectl, "ada", "l40s")
    assert "L40S" in world.wait_for("True", "HardwareFound", "HardwareResolved")
    assert world.plan_hash() != before
    kubectl("delete", "node", "ada")
    world.wait_for("Unknown", "NoNodeYet", "HardwareResolved")


def test_a_pod_that_was_on_the_first_gpu_node_before_its_labels_gets_their_plan(world: World, kubectl: Any):
    world.apply(workload=TRAFFIC, hardware={"products": ["NVIDIA-L40S"]})
    world.wait_for("Unknown", "NoNodeYet", "HardwareResolved")
    before = world.plan_hash()
    world.pod("vlm-0", node="ada")
    add_node(kubectl, "ada", "l40s")
    try:
        assert "L40S" in world.wait_for("True", "HardwareFound", "HardwareResolved")
        assert world.plan_hash() != before
    finally:
        kubectl("delete", "node", "ada")


def test_a_nodes_heartbeat_reconciles_nothing(world: World, kubectl: Any, operator: Operator):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    settle(operator)
    before = operator.metric("vlm_operator_reconciles_total")
    for beat in range(3):
        kubectl("label", "node", "hopper", "--overwrite", f"nvidia.com/gfd.timestamp={beat}")
        heartbeat = [{"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:0{beat}Z"}]
        patch = json.dumps({"status": {"conditions": heartbeat}})
        kubectl("patch", "node", "hopper", "--subresource=status", "--type=merge", "-p", patch)
    time.sleep(1)
    assert operator.metric("vlm_operator_reconciles_total") == before


def test_a_label_that_changes_under_running_pods_is_told_and_replaces_nothing(world: World, kubectl: Any):
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


def test_a_plan_that_cannot_work_starts_nothing_and_says_the_sum(world: World):
    world.apply(model={**QWEN, "uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct", "parametersBillion": 235})
    assert "MiB" in world.wait_for("False", "ModelDoesNotFit")
    assert world.condition("ResourceFit")[:2] == ("False", "ModelDoesNotFit")
    assert not world.exists("deployment")
    assert not world.exists("service")


def test_a_refused_change_leaves_the_running_pods_alone(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    world.serving()
    world.wait_for("True", "Serving")
    before = world.get("deployment")["metadata"]["generation"]
    world.apply(model={**QWEN, "uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct", "parametersBillion": 235})
    assert "still answer" in world.wait_for("False", "ModelDoesNotFit")
    assert world.get("deployment")["metadata"]["generation"] == before
    assert world.condition("Available")[0] == "True"


def test_while_a_change_is_refused_the_pods_that_run_can_still_be_counted_and_stopped(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    template = world.get("deployment")["spec"]["template"]
    too_large = {**QWEN, "uri": "hf://Qwen/Qwen3-VL-235B-A22B-Instruct", "parametersBillion": 235}

    def count() -> int:
        found: int = world.get("deployment")["spec"]["replicas"]
        return found

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


def test_a_setting_that_the_version_does_not_have_is_refused_in_words_until_it_is_mended(world: World):
    world.apply(engine={"settings": {"prefil_decode_interval": 10}})
    message = world.wait_for("False", "InvalidSpec", "OverridesResolved")
    assert "prefil_decode_interval" in message
    assert "prefill_decode_interval" in message
    assert world.condition()[:2] == ("False", "InvalidSpec")
    assert not world.exists("deployment")
    world.apply(engine={"settings": {"prefill_decode_interval": 10}})
    world.wait_for("True", "Resolved", "OverridesResolved")
    eventually(lambda: world.exists("deployment"))


def test_what_the_pod_template_may_not_be_is_refused_in_words(world: World):
    world.apply(template={"metadata": {"labels": {"vlmserve.dev/service": "other"}}})
    assert "spec.template.metadata.labels" in world.wait_for("False", "InvalidSpec")


def test_what_the_api_server_refuses_is_in_the_status(world: World):
    world.apply(template={"spec": {"restartPolicy": "Never"}})
    assert "restartPolicy" in world.wait_for("False", "NotApplied")


def test_an_admission_webhook_that_is_down_is_in_the_status_until_it_is_mended(world: World, kubectl: Any):
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


def test_a_suspended_service_shows_its_plan_and_has_no_pods(world: World):
    world.apply(workload=TRAFFIC, suspend=True)
    world.wait_for("False", "Suspended")
    assert world.plan_hash()
    assert world.get("deployment")["spec"]["replicas"] == 0
    world.apply(workload=TRAFFIC, suspend=False)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 1)


def test_an_autoscalers_number_is_never_undone(world: World):
    world.apply(workload=TRAFFIC, scaling={"minReplicas": 2, "maxReplicas": 4})
    eventually(lambda: world.exists("hpa"))
    world("scale", "deployment/vlm", "--replicas=3")
    world("annotate", "deployment", "vlm", "touched=yes")
    world.apply(workload=TRAFFIC, scaling={"minReplicas": 2, "maxReplicas": 5})
    eventually(lambda: world.get("hpa")["spec"]["maxReplicas"] == 5)
    assert world.get("deployment")["spec"]["replicas"] == 3


def test_turning_autoscaling_on_keeps_the_replicas_that_serve(world: World):
    world.apply(workload=TRAFFIC, replicas=3)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 3)
    world("patch", "vlms", "vlm", "--type=merge", "-p", '{"spec":{"replicas":null,"scaling":{"maxReplicas":4}}}')
    eventually(lambda: world.exists("hpa"))
    assert world.get("deployment")["spec"]["replicas"] == 3
    world("patch", "vlms", "vlm", "--type=merge", "-p", '{"spec":{"replicas":2,"scaling":null}}')
    eventually(lambda: not world.exists("hpa") and world.get("deployment")["spec"]["replicas"] == 2)


def test_the_last_words_of_a_container_are_in_the_status_and_its_log_is_not(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    words = json.dumps({"reason": "OutOfDeviceMemory", "message": "24 MiB were missing on GPU 0"})
    world.pod("said", node="hopper", phase="Running", containerStatuses=ended(words))
    assert "24 MiB" in world.wait_for("False", "OutOfDeviceMemory")
    world("delete", "pod", "said", "--force", "--grace-period=0")
    world.pod("unsaid", node="hopper", phase="Running", containerStatuses=ended("boom: token hf_secret"))
    assert "kubectl logs unsaid" in world.wait_for("False", "ContainerEnded")
    assert "hf_secret" not in json.dumps(world.get("vlms"))
    assert "hf_secret" not in events(world)


def test_the_schedulers_own_words_are_in_the_status(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    world.pod("waits", phase="Pending", conditions=[condition])
    assert said in world.wait_for("False", "Unschedulable")
    assert world.condition("Progressing")[:2] == ("False", "Unschedulable")


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


def test_a_deleted_service_leaves_nothing_in_the_operators_metrics(world: World, operator: Operator):
    settle(operator)
    ready = ("vlm_operator_services", 'condition="Ready"')
    before = operator.metric(*ready)
    world.apply(workload=TRAFFIC)
    eventually(lambda: operator.metric(*ready) == before + 1)
    world("delete", "vlms", "vlm")
    eventually(lambda: operator.metric(*ready) == before)


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
