"""Models of which nothing is known: the Job that reads them, and what its answer does.

No kubelet and no Job controller runs; tests play their part.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.operating import Operator, World, add_node, ended, eventually, writes

HUB = {"uri": "hf://org/model"}
CLAIM = {"uri": "pvc://models/org/model"}
TRAFFIC = {"concurrency": 400, "images": {"width": 512, "height": 512}}
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


@pytest.fixture(scope="module")
def operator(api_server: Any, kubectl: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    add_node(kubectl, "reading", "h100")
    log = tmp_path_factory.mktemp("inspecting") / "log"
    started = Operator(api_server.kubeconfig, log, "--no-leader-election").start()
    yield started
    assert started.stop() == 0, started.said()
    assert "Traceback" not in started.said()
    kubectl("delete", "node", "reading")


@pytest.fixture
def world(operator: Operator, kubectl: Any, namespace: str) -> World:
    return World(kubectl, namespace)


def test_nothing_is_started_before_an_unknown_model_has_been_read(world: World):
    world.apply(model=CLAIM, workload=TRAFFIC)
    world.wait_for("False", "Inspecting")
    assert world.condition("ModelReady")[:2] == ("Unknown", "Inspecting")
    assert world.condition("Progressing")[:2] == ("True", "Inspecting")
    assert not world.exists("deployment")
    (job,) = world.jobs()
    (owner,) = job["metadata"]["ownerReferences"]
    assert owner["uid"] == world.get("vlms")["metadata"]["uid"]


def test_what_was_read_makes_the_plan_and_the_job_goes(world: World, kubectl: Any):
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


def test_what_was_read_outlives_the_job_and_other_wishes_and_is_not_read_again(world: World, kubectl: Any):
    world.apply(model=CLAIM, workload=TRAFFIC)
    job = world.inspecting_job()
    world.answers(job, {"facts": QWEN3_VL_8B})
    eventually(lambda: world.exists("deployment") and not world.exists("job", job))
    before, jobs = world.plan_hash(), writes(kubectl).get("jobs")
    world.apply(model=CLAIM, workload={**TRAFFIC, "concurrency": 64})
    eventually(lambda: world.plan_hash() != before)
    assert world.get("vlms")["status"]["plan"]["memory"]["weightsMiB"] == 16722
    assert writes(kubectl).get("jobs") == jobs


def test_a_model_that_is_not_shown_is_told_and_served_all_the_same(world: World, kubectl: Any):
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


def test_a_token_that_is_given_makes_it_read_again(world: World):
    world.apply(model=HUB, workload=TRAFFIC)
    first = world.inspecting_job()
    world.answers(first, {"failure": DENIED})
    eventually(lambda: world.exists("deployment") and not world.exists("job", first))
    world.apply(model={**HUB, "tokenSecretRef": {"name": "hub", "key": "token"}}, workload=TRAFFIC)
    second = eventually(lambda: next(j for j in world.jobs() if j["metadata"]["name"] != first))["metadata"]["name"]
    world.answers(second, {"facts": QWEN3_VL_8B})
    world.wait_for("Unknown", "ModelNotLoadedYet", "ModelReady")
    assert world.get("vlms")["status"]["plan"]["memory"]["weightsMiB"] == 16722


def test_pods_that_serve_stay_while_another_model_is_read(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    before = world.plan_hash()
    world.serving()
    world.wait_for("True", "Serving")
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


def test_another_model_takes_the_job_of_the_one_before_away(world: World):
    world.apply(model=HUB)
    first = world.inspecting_job()
    world.apply(model={"uri": "hf://org/other"})
    eventually(lambda: not world.exists("job", first) and world.jobs())


def test_a_model_that_the_spec_describes_after_all_is_not_waited_for(world: World):
    world.apply(model=HUB)
    job = world.inspecting_job()
    world.apply(model={**HUB, "architecture": "Qwen3VLForConditionalGeneration", "parametersBillion": 8})
    eventually(lambda: world.exists("deployment") and not world.exists("job", job))


def test_what_is_wrong_whatever_the_model_says_is_told_before_it_is_read(world: World):
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


def test_the_scheduler_s_words_about_the_reading_pod_are_shown_meanwhile(world: World):
    world.apply(model=CLAIM)
    said = "0/1 nodes are available: persistentvolumeclaim 'models' not found."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    world.answers(world.inspecting_job(), phase="Pending", conditions=[condition])
    eventually(lambda: said in world.condition("ModelReady")[2])
    assert not world.exists("deployment")


def test_a_service_that_goes_takes_nothing_with_it_that_others_need(world: World):
    world.apply("one", model=HUB)
    world.apply("two", model=HUB)
    first, second = world.inspecting_job("one"), world.inspecting_job("two")
    assert first != second
    world.answers(second, {"facts": QWEN3_VL_8B})
    eventually(lambda: world.exists("deployment", "two"))
    assert not world.exists("deployment", "one")


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
