"""The life of a service's spec and of its number of replicas, against a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.operating import QWEN, Operator, World, add_node, eventually

from minicluster.paths import tool

TRAFFIC = {"concurrency": 400, "images": {"width": 512, "height": 512}}
Vlm = Callable[..., str]


@pytest.fixture(scope="module")
def operator(api_server: Any, kubectl: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    add_node(kubectl, "hopper", "h100")
    log = tmp_path_factory.mktemp("operator") / "log"
    started = Operator(api_server.kubeconfig, log, "--no-leader-election").start()
    yield started
    assert started.stop() == 0, started.said()
    assert "Traceback" not in started.said()
    kubectl("delete", "node", "hopper")


@pytest.fixture
def world(operator: Operator, kubectl: Any, namespace: str) -> World:
    return World(kubectl, namespace)


@pytest.fixture
def vlm(kubectl: Any, namespace: str) -> Vlm:
    """``kubectl vlm`` in the test's namespace; returns what it prints, and fails the test when it fails."""
    search = os.pathsep.join([str(Path(sys.executable).parent), str(tool("kubectl").parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search, "KUBECONFIG": str(kubectl.kubeconfig), "NO_COLOR": "1"}

    def run(*arguments: str, code: int = 0) -> str:
        command = [str(tool("kubectl")), "vlm", *arguments, "-n", namespace]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def numbers(world: World) -> list[int]:
    found = json.loads(world("get", "controllerrevisions", "-o", "json"))["items"]
    return sorted(r["revision"] for r in found)


def changed(world: World, concurrency: int) -> str:
    """Applies another concurrency and waits for its plan."""
    before = world.plan_hash()
    world.apply(workload={**TRAFFIC, "concurrency": concurrency})
    eventually(lambda: world.plan_hash() != before)
    return world.plan_hash()


def test_history_lists_the_specs_and_rollback_brings_the_one_before_back(world: World, vlm: Vlm):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    first = world.plan_hash()
    world("scale", "vlms/vlm", "--replicas=2")
    changed(world, 64)
    eventually(lambda: numbers(world) == [1, 2])
    (now,) = [line for line in vlm("history", "vlm").splitlines() if "(now)" in line]
    assert now.split()[0] == "2"
    assert "concurrency: 400" in vlm("history", "vlm", "--revision", "1")
    assert "concurrency" in vlm("rollback", "vlm", "--dry-run")
    assert world.get("vlms")["spec"]["workload"]["concurrency"] == 64
    said = vlm("rollback", "vlm")
    assert "-    concurrency: 64" in said or "-  concurrency: 64" in said
    eventually(lambda: world.plan_hash() == first)
    spec = world.get("vlms")["spec"]
    assert (spec["workload"]["concurrency"], spec["replicas"]) == (400, 2)
    eventually(lambda: numbers(world) == [2, 3])
    vlm("rollback", "vlm", "--to-revision", "2")
    eventually(lambda: world.get("vlms")["spec"]["workload"]["concurrency"] == 64)


def test_rollback_to_what_is_not_there_is_refused_in_words(world: World, vlm: Vlm):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    eventually(lambda: numbers(world) == [1])
    assert "no earlier revision" in vlm("rollback", "vlm", code=1)
    assert "no revision 7 of vlm: there are 1" in vlm("rollback", "vlm", "--to-revision", "7", code=2)


def test_a_spec_that_was_refused_is_no_revision_and_rollback_leads_out_of_it(world: World, vlm: Vlm):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    first = world.plan_hash()
    world.apply(workload=TRAFFIC, engine={"settings": {"no_such_setting": 1}})
    world.wait_for("False", "InvalidSpec")
    assert numbers(world) == [1]
    vlm("rollback", "vlm")
    world.wait_for("False", "Starting")
    assert world.plan_hash() == first


def test_a_broken_revision_does_not_hold_up_the_next(world: World):
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
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
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    for number in range(11):
        changed(world, 10 + number)
    eventually(lambda: numbers(world) == list(range(3, 13)))


def test_a_suspended_service_changes_and_comes_back_with_the_new_spec(world: World):
    world.apply(workload=TRAFFIC, replicas=2)
    world.wait_for("False", "Starting")
    world.apply(workload={**TRAFFIC, "concurrency": 64}, replicas=2, suspend=True)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 0)
    world.apply(workload={**TRAFFIC, "concurrency": 64}, replicas=2, suspend=False)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 2)
    assert world.get("vlms")["status"]["desiredReplicas"] == 2


def test_a_roll_out_takes_no_gpu_more_than_there_is(world: World):
    world.apply(workload=TRAFFIC)
    rolling = eventually(lambda: world.get("deployment"))["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}


def scaled(world: World, replicas: int) -> None:
    """Does what an autoscaler does."""
    world("scale", "deployment/vlm", f"--replicas={replicas}")
    eventually(lambda: world.get("vlms")["status"]["desiredReplicas"] == replicas)


def test_an_autoscalers_number_stays_when_the_autoscaler_goes_and_is_shown_as_desired(world: World):
    world.apply(workload=TRAFFIC, scaling={"minReplicas": 2, "maxReplicas": 4})
    eventually(lambda: world.exists("hpa"))
    scaled(world, 3)
    names, values = world("get", "vlms", "vlm").splitlines()
    at = names.index("DESIRED")
    assert values[at:].split()[0] == "3"
    world.apply(workload=TRAFFIC)
    eventually(lambda: not world.exists("hpa"))
    world("annotate", "deployment", "vlm", "touched=yes")
    before = world.plan_hash()
    world.apply(workload={**TRAFFIC, "concurrency": 64})
    eventually(lambda: world.plan_hash() != before)
    assert world.get("deployment")["spec"]["replicas"] == 3
    world.apply(workload={**TRAFFIC, "concurrency": 64}, replicas=1)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 1)


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


@pytest.mark.parametrize("made", [("create",), ("apply",), ("apply", "--server-side")], ids=" ".join)
def test_an_autoscalers_number_stays_however_the_service_was_made(world: World, made: tuple[str, ...]):
    manifest: dict[str, Any] = {
        "apiVersion": "vlmserve.dev/v1alpha1",
        "kind": "VLMService",
        "metadata": {"name": "vlm"},
    }
    world(*made, "-f", "-", stdin={**manifest, "spec": {"model": QWEN, "scaling": {"maxReplicas": 4}}})
    eventually(lambda: world.exists("hpa"))
    scaled(world, 3)
    world("patch", "vlms", "vlm", "--type=json", "-p", '[{"op": "remove", "path": "/spec/scaling"}]')
    eventually(lambda: not world.exists("hpa"))
    before = world.plan_hash()
    world.patch({"spec": {"workload": {"concurrency": 64}}})
    eventually(lambda: world.plan_hash() != before)
    assert world.get("deployment")["spec"]["replicas"] == 3
    if "--server-side" in made:
        manifest["spec"] = {"model": QWEN, "replicas": 1}
        world(*made, "--force-conflicts", "-f", "-", stdin=manifest)
    else:
        world("scale", "vlms/vlm", "--replicas=1")
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 1)


def test_a_missing_metric_is_told_in_the_autoscalers_words(world: World):
    world.apply(workload=TRAFFIC, scaling={"maxReplicas": 4})
    eventually(lambda: world.exists("hpa"))
    world.wait_for("Unknown", "AutoscalerSilent", "ScalingActive")
    said = "no custom metrics API (custom.metrics.k8s.io) registered"
    condition = {"type": "ScalingActive", "status": "False", "reason": "FailedGetPodsMetric", "message": said}
    counts = {"currentReplicas": 1, "desiredReplicas": 1, "currentMetrics": None}
    world.status_of("hpa", "vlm", conditions=[condition], **counts)
    assert said in world.wait_for("False", "MetricMissing", "ScalingActive")
    assert world.condition()[1] == "Starting"


def test_whoever_scales_through_the_service_is_followed(world: World, kubectl: Any):
    # KEDA and HorizontalPodAutoscalers of one's own name the VLMService as their target.
    world.apply(workload=TRAFFIC)
    world.wait_for("False", "Starting")
    path = f"/apis/vlmserve.dev/v1alpha1/namespaces/{world.namespace}/vlmservices/vlm/scale"
    scale = json.loads(kubectl("get", "--raw", path))
    assert scale["status"]["selector"] == "vlmserve.dev/component=engine,vlmserve.dev/service=vlm"
    scale["spec"]["replicas"] = 4
    kubectl("replace", "--raw", path, "-f", "-", stdin=scale)
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 4)
