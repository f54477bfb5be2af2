"""Unknown models: the Job that reads them, and what its answer does.

No kubelet and no Job controller runs; tests play their part.
"""

import json
import time
from typing import Any

import pytest
from apiserver.operating import TRAFFIC, World, ended, eventually, writes

HUB = {"uri": "hf://org/model"}
CLAIM = {"uri": "pvc://models/org/model"}
MODELS = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "models"},
    "spec": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}},
}
QWEN3_VL_8B = {
    "architecture": "Qwen3VLForConditionalGeneration",
    "parameters": 8_767_123_696,
    "bitsPerParameter": 16,
    "layers": 36,
    "kvHeads": 8,
    "headSize": 128,
    "visionHiddenSize": 1152,
    "embeddingValuesPerToken": 16384,
    "patchSize": 16,
}
DENIED = {"reason": "ModelAccessDenied", "message": "the hub answers 401: give spec.model.tokenSecretRef"}
NODES, OPTIONS = ("reading",), ("--no-leader-election",)
pytestmark = pytest.mark.usefixtures("operator")


def test_nothing_is_started_before_an_unknown_model_has_been_read(world: World):
    world.apply(model=CLAIM, workload=TRAFFIC)
    world.wait_for("False", "Inspecting")
    assert world.condition("ModelReady")[:2] == ("Unknown", "Inspecting")
    assert world.condition("Progressing")[:2] == ("True", "Inspecting")
    assert not world.exists("deployment")
    (job,) = world.jobs()
    (owner,) = job["metadata"]["ownerReferences"]
    assert owner["uid"] == world.get("vlms")["metadata"]["uid"]


def test_what_was_read_makes_the_plan_and_the_job_is_deleted(world: World, kubectl: Any):
    kubectl("label", "namespace", world.namespace, "pod-security.kubernetes.io/enforce=restricted")
    world.apply(model=CLAIM, workload=TRAFFIC)
    job = world.inspecting_job()
    world.answers(job, {"facts": QWEN3_VL_8B})
    eventually(lambda: world.exists("deployment"))
    plan = eventually(lambda: world.get("vlms")["status"]["plan"])
    assert plan["memory"]["weightsMiB"] == 16722
    settings = {s["name"]: s for s in plan["settings"]}
    assert settings["mm_feature_transport"]["value"] == "cuda_ipc", "the family's profile applies"
    assert "MemoryNotChecked" not in json.dumps(plan["findings"])
    assert world.get("vlms")["status"]["model"]["facts"] == QWEN3_VL_8B
    eventually(lambda: not world.exists("job", job))


def test_what_was_read_outlives_the_job_and_other_changes_and_is_not_read_again(world: World, kubectl: Any):
    world.apply(model=CLAIM, workload=TRAFFIC)
    job = world.inspecting_job()
    world.answers(job, {"facts": QWEN3_VL_8B})
    eventually(lambda: world.exists("deployment") and not world.exists("job", job))
    before, jobs = world.plan_hash(), writes(kubectl).get("jobs")
    world.apply(model=CLAIM, workload={**TRAFFIC, "concurrency": 64})
    eventually(lambda: world.plan_hash() != before)
    assert world.get("vlms")["status"]["plan"]["memory"]["weightsMiB"] == 16722
    assert writes(kubectl).get("jobs") == jobs


def test_a_model_that_cannot_be_read_is_reported_and_served_anyway(world: World, kubectl: Any):
    world.apply(model=HUB, workload=TRAFFIC)
    job = world.inspecting_job()
    world.answers(job, {"failure": DENIED})
    eventually(lambda: world.exists("deployment"))
    assert "tokenSecretRef" in world.wait_for("False", "ModelAccessDenied", "ModelReady")
    world.wait_for("False", "Starting")
    findings = {f["reason"]: f for f in world.get("vlms")["status"]["plan"]["findings"]}
    assert findings["ModelAccessDenied"]["severity"] == "Warning"
    assert "MemoryNotChecked" in findings
    eventually(lambda: "ModelAccessDenied" in world("get", "events.events.k8s.io", "-o", "json"))
    eventually(lambda: not world.exists("job", job))
    jobs = writes(kubectl)["jobs"]
    world("scale", "vlms/vlm", "--replicas=2")
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 2)
    time.sleep(1)
    assert writes(kubectl)["jobs"] == jobs, "what was refused is not asked for again"


def test_pods_that_serve_stay_while_another_model_is_read(world: World):
    world.starts()
    before = world.plan_hash()
    world.serving()
    world.wait_for("True", "Serving")
    world("create", "-f", "-", stdin=MODELS)
    world.apply(model=CLAIM, workload=TRAFFIC)
    job = world.inspecting_job()
    world.wait_for("True", "Inspecting", "Progressing")
    assert world.plan_hash() == before
    assert world.condition()[:2] == ("True", "Serving")
    world.answers(job, {"facts": QWEN3_VL_8B})
    eventually(lambda: world.plan_hash() != before)


def test_a_plan_that_is_in_force_is_not_waited_for_when_its_model_was_never_read(world: World):
    world.apply(model=HUB, workload=TRAFFIC)
    job = world.inspecting_job()
    world.answers(job, {"failure": DENIED})
    before = eventually(world.plan_hash)
    world.pod("vlm-0", node="reading")
    world(
        "patch",
        "vlms",
        "vlm",
        "--subresource=status",
        "--type=json",
        "-p",
        '[{"op": "remove", "path": "/status/model"}]',
    )
    world("scale", "vlms/vlm", "--replicas=2")
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 2)
    assert world.plan_hash() == before
    assert [j["metadata"]["name"] for j in world.jobs() if j["metadata"]["name"] != job] == []


def test_an_error_that_does_not_depend_on_the_model_is_reported_before_it_is_read(world: World):
    world.apply(model=HUB, engine={"settings": {"prefil_decode_interval": 10}})
    world.wait_for("False", "InvalidSpec")
    assert world.jobs() == []
    world.apply(model=HUB, parallelism={"tensor": 16})
    world.wait_for("False", "TooManyDevices")
    assert world.jobs() == []


def test_a_model_that_turns_out_too_large_starts_nothing(world: World):
    world.apply(model=HUB)
    job = world.inspecting_job()
    world.answers(job, {"facts": {**QWEN3_VL_8B, "parameters": 235_000_000_000}})
    assert "MiB" in world.wait_for("False", "ModelDoesNotFit")
    assert not world.exists("deployment")
    eventually(lambda: not world.exists("job", job))


def test_a_model_that_comes_after_its_service_is_read_when_the_pods_fail_without_it(world: World):
    world.apply(model=CLAIM, workload=TRAFFIC)
    first = world.inspecting_job()
    world.answers(first, {"failure": {"reason": "ModelNotFound", "message": "the claim has no folder /org/model"}})
    before = eventually(world.plan_hash)
    eventually(lambda: not world.exists("job", first))
    world("delete", "pods", "--all", "--force", "--grace-period=0")
    words = json.dumps({"reason": "ModelNotFound", "message": "the engine found no model"})
    world.pod("vlm-0", node="reading", phase="Running", containerStatuses=ended(words))
    world.wait_for("False", "ModelNotFound")
    conditions = world.get("vlms")["status"]["conditions"]
    for each in conditions:
        each["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    world.status_of("vlms", "vlm", conditions=conditions)
    second = world.inspecting_job()
    assert world.plan_hash() == before, "what is there stays until there is something better"
    world.answers(second, {"facts": QWEN3_VL_8B})
    eventually(lambda: world.get("vlms")["status"]["plan"]["memory"].get("weightsMiB") == 16722)
    assert world.plan_hash() != before
    eventually(lambda: not world.exists("job", second))


def test_pods_that_serve_outlast_a_change_to_a_claim_and_a_folder_that_do_not_exist(world: World):
    world.starts()
    before = world.get("deployment")["spec"]["template"]
    world.serving()
    world.wait_for("True", "Serving")
    world.apply(model=CLAIM, workload=TRAFFIC)
    assert "create it" in world.wait_for("False", "ClaimNotFound")
    world("create", "-f", "-", stdin=MODELS)
    world("annotate", "vlms/vlm", "seen=now")  # instead of the 30 s until the claim is looked for again
    first = world.inspecting_job()
    world.answers(first, {"failure": {"reason": "ModelNotFound", "message": "the claim has no folder /org/model"}})
    assert "the change is not applied" in world.wait_for("False", "ModelNotFound")
    service = world.get("vlms")
    assert service["status"]["observedGeneration"] == service["metadata"]["generation"]
    assert world.condition("Available")[:2] == ("True", "ReplicasAvailable")
    assert world.get("deployment")["spec"]["template"] == before
    eventually(lambda: not world.exists("job", first))
    world("delete", "pods", f"{first}-0", "--force", "--grace-period=0")  # the garbage collector does it in a cluster
    conditions = service["status"]["conditions"]
    for each in conditions:
        each["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    world.status_of("vlms", "vlm", conditions=conditions)
    second = world.inspecting_job()
    assert world.condition()[:2] == ("False", "ModelNotFound"), "the refusal stays while the folder is looked for"
    world.answers(second, {"facts": QWEN3_VL_8B})
    eventually(lambda: world.get("deployment")["spec"]["template"] != before)
    eventually(lambda: not world.exists("job", second))
