"""The history of a service's spec and its number of replicas, against a real API server."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from apiserver.operating import QWEN, TRAFFIC, World, eventually

Vlm = Callable[..., str]
NODES, OPTIONS = ("hopper",), ("--no-leader-election",)
pytestmark = pytest.mark.usefixtures("operator")


def numbers(world: World) -> list[int]:
    found = json.loads(world("get", "controllerrevisions", "-o", "json"))["items"]
    return sorted(r["revision"] for r in found)


def changed(world: World, concurrency: int) -> str:
    """Applies another concurrency and waits for its plan."""
    before = world.plan_hash()
    world.apply(workload={**TRAFFIC, "concurrency": concurrency})
    eventually(lambda: world.plan_hash() != before)
    return world.plan_hash()


def test_history_lists_the_specs_and_rollback_brings_the_one_before_back(world: World, kubectl_vlm: Vlm):
    world.starts()
    first = world.plan_hash()
    world("scale", "vlms/vlm", "--replicas=2")
    changed(world, 64)
    eventually(lambda: numbers(world) == [1, 2])
    (now,) = [line for line in kubectl_vlm("history", "vlm").splitlines() if "(current)" in line]
    assert now.split()[0] == "2"
    assert "concurrency: 400" in kubectl_vlm("history", "vlm", "--revision", "1")
    assert "concurrency" in kubectl_vlm("rollback", "vlm", "--dry-run")
    assert world.get("vlms")["spec"]["workload"]["concurrency"] == 64
    assert "-    concurrency: 64" in kubectl_vlm("rollback", "vlm")
    eventually(lambda: world.plan_hash() == first)
    spec = world.get("vlms")["spec"]
    assert (spec["workload"]["concurrency"], spec["replicas"]) == (400, 2)
    eventually(lambda: numbers(world) == [2, 3])
    kubectl_vlm("rollback", "vlm", "--to-revision", "2")
    eventually(lambda: world.get("vlms")["spec"]["workload"]["concurrency"] == 64)


def test_rollback_to_a_missing_revision_is_refused(world: World, kubectl_vlm: Vlm):
    world.starts()
    eventually(lambda: numbers(world) == [1])
    assert "no earlier revision" in kubectl_vlm("rollback", "vlm", code=1)
    assert "vlm has no revision 7: choose one of 1" in kubectl_vlm("rollback", "vlm", "--to-revision", "7", code=2)


def test_a_refused_spec_is_not_a_revision_and_rollback_undoes_it(world: World, kubectl_vlm: Vlm):
    world.starts()
    first = world.plan_hash()
    world.apply(workload=TRAFFIC, engine={"settings": {"no_such_setting": 1}})
    world.wait_for("False", "InvalidSpec")
    assert numbers(world) == [1]
    kubectl_vlm("rollback", "vlm")
    world.wait_for("False", "Starting")
    assert world.plan_hash() == first


def test_a_broken_revision_does_not_hold_up_the_next(world: World):
    world.starts()
    world.serving()
    broken = changed(world, 64)
    waiting = [{"name": "main", "image": "x", "imageID": "x", "ready": False, "restartCount": 3}]
    waiting[0]["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    world.pod("broken", node="hopper", plan_hash=broken, phase="Pending", containerStatuses=waiting)
    world.wait_for("False", "ImagePullBackOff", "Progressing")
    good = changed(world, 128)
    eventually(lambda: world.get("deployment")["spec"]["template"]["metadata"]["labels"]["vlmserve.dev/plan"] == good)
    assert world.condition("Progressing")[1] == "RollingOut"


def test_only_ten_revisions_are_kept(world: World):
    world.starts()
    for number in range(11):
        changed(world, 10 + number)
    eventually(lambda: numbers(world) == list(range(3, 13)))


def test_a_suspended_service_changes_and_comes_back_with_the_new_spec(world: World):
    world.starts(replicas=2)
    world.apply(workload={**TRAFFIC, "concurrency": 64}, replicas=2, suspend=True)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 0)
    world.apply(workload={**TRAFFIC, "concurrency": 64}, replicas=2, suspend=False)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 2)
    eventually(lambda: world.get("vlms")["status"]["desiredReplicas"] == 2)


def scaled(world: World, replicas: int) -> None:
    """Does what an autoscaler does."""
    world("scale", "deployment/vlm", f"--replicas={replicas}")
    eventually(lambda: world.get("vlms")["status"]["desiredReplicas"] == replicas)


def test_from_replicas_to_scaling_and_back_no_number_is_reset(world: World):
    world.apply(workload=TRAFFIC, replicas=3)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 3)
    world.apply(workload=TRAFFIC, scaling={"maxReplicas": 4})
    eventually(lambda: world.exists("hpa"))
    world.apply(workload=TRAFFIC)
    eventually(lambda: not world.exists("hpa"))
    world("annotate", "deployment", "vlm", "touched=yes")
    world.apply(workload=TRAFFIC, replicas=2)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 2)
    world.apply(workload=TRAFFIC, scaling={"maxReplicas": 4})
    eventually(lambda: world.exists("hpa"))
    assert world.get("deployment")["spec"]["replicas"] == 2


@pytest.mark.parametrize("verb", [("create",), ("apply",), ("apply", "--server-side")], ids=" ".join)
def test_an_autoscalers_number_stays_however_the_service_was_created(world: World, verb: tuple[str, ...]):
    manifest: dict[str, Any] = {
        "apiVersion": "vlmserve.dev/v1alpha1",
        "kind": "VLMService",
        "metadata": {"name": "vlm"},
    }
    world(*verb, "-f", "-", stdin={**manifest, "spec": {"model": QWEN, "scaling": {"maxReplicas": 4}}})
    eventually(lambda: world.exists("hpa"))
    scaled(world, 3)
    world("patch", "vlms", "vlm", "--type=json", "-p", '[{"op": "remove", "path": "/spec/scaling"}]')
    eventually(lambda: not world.exists("hpa"))
    before = world.plan_hash()
    world.patch({"spec": {"workload": {"concurrency": 64}}})
    eventually(lambda: world.plan_hash() != before)
    assert world.get("deployment")["spec"]["replicas"] == 3
    if "--server-side" in verb:
        manifest["spec"] = {"model": QWEN, "replicas": 1}
        world(*verb, "--force-conflicts", "-f", "-", stdin=manifest)
    else:
        world("scale", "vlms/vlm", "--replicas=1")
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 1)


def test_a_missing_metric_is_reported_with_the_autoscalers_message(world: World):
    world.apply(workload=TRAFFIC, scaling={"maxReplicas": 4})
    eventually(lambda: world.exists("hpa"))
    world.wait_for("Unknown", "AutoscalerSilent", "ScalingActive")
    message = "no custom metrics API (custom.metrics.k8s.io) registered"
    condition = {"type": "ScalingActive", "status": "False", "reason": "FailedGetPodsMetric", "message": message}
    counts = {"currentReplicas": 1, "desiredReplicas": 1, "currentMetrics": None}
    world.status_of("hpa", "vlm", conditions=[condition], **counts)
    assert message in world.wait_for("False", "MetricMissing", "ScalingActive")
    assert world.condition()[1] == "Starting"
