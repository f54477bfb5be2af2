"""Trouble that a cluster has: an operator that dies, an API server that is away, many things at the same time."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from apiserver.operating import TRAFFIC, Operator, World, eventually

from minicluster.local import apiserver
from vlm_operator.kube.lease import LEASE_SECONDS, RETRY_SECONDS

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

# Of the design: from the death of an operator until another works.
FAIL_OVER_SECONDS = 15.0


def test_after_random_trouble_with_many_services_a_fresh_operator_finds_nothing_to_do(tmp_path: Path):
    from chaos import run  # the benchmark, in small

    result = run(tmp_path, services=10, steps=40, seed=7)
    assert result.written_by_a_fresh_operator == {}
    assert result.orphans == []
    assert result.replaced == [], "pods of services that nobody changed were replaced"
    assert result.unfinished == []


def test_of_two_operators_the_second_works_soon_after_the_first_was_killed(start: Any, world: World):
    first = start()
    second = start(until="standing by")
    world.starts()
    first.stop(signal.SIGKILL)
    killed = time.monotonic()
    world("scale", "vlms/vlm", "--replicas=2")
    eventually(lambda: world.get("deployment")["spec"]["replicas"] == 2, seconds=30, what=second.said)
    assert LEASE_SECONDS + 2 * RETRY_SECONDS < FAIL_OVER_SECONDS
    # A slow machine adds to what the design promises.
    assert time.monotonic() - killed < FAIL_OVER_SECONDS + 5


def test_an_operator_that_was_stopped_for_long_writes_nothing_when_it_wakes_up(start: Any, world: World):
    first = start()
    second = start(until="standing by")
    world.starts()
    os.kill(first.pid, signal.SIGSTOP)
    eventually(lambda: second.metric("vlm_operator_leader") == 1, seconds=30, what=second.said)
    before = world.versions()
    os.kill(first.pid, signal.SIGCONT)
    eventually(lambda: not first.running, seconds=30, what=first.said)
    assert "lease" in first.said()
    assert world.versions() == before


def test_three_changes_in_a_moment_end_in_the_last(start: Any, world: World):
    start("--no-leader-election")
    world.starts()
    for concurrency in (16, 32, 48):
        world.patch({"spec": {"workload": {"concurrency": concurrency}}})
    generation = world.get("vlms")["metadata"]["generation"]
    eventually(lambda: world.get("vlms")["status"]["observedGeneration"] == generation)
    plan = json.loads(world.get("configmap", f"vlm-plan-{world.plan_hash()}")["data"]["plan.json"])
    settings = {s["name"]: s["value"] for s in plan["settings"]}
    assert settings["max_running_requests"] == 48


def test_a_service_created_again_under_its_name_gets_objects_of_its_own(start: Any, world: World):
    start("--no-leader-election")
    world.starts()
    old = world.get("vlms")["metadata"]["uid"]
    world("delete", "vlms", "vlm")
    world.apply(workload=TRAFFIC)
    # Objects of the one before are not ours; the garbage collector, which does not run here, removes them.
    world.wait_for("False", "NameTaken")
    for kind in ("deployment", "service", "networkpolicy", "configmap", "controllerrevision"):
        world("delete", kind, "-l", "vlmserve.dev/service=vlm")
    eventually(lambda: world.get("deployment")["metadata"]["ownerReferences"][0]["uid"] != old, seconds=40)
    world.wait_for("False", "Starting")


def test_an_api_server_that_is_away_for_long_is_waited_for(tmp_path: Path):
    with apiserver(tmp_path) as server:
        from control_plane import Api, install, server_pid, service

        api = Api(server.url, tmp_path / "pki")
        install(api)
        operator = Operator(server.kubeconfig, tmp_path / "operator.log", "--no-leader-election").start()
        pid = server_pid(tmp_path)
        path = "/apis/vlmserve.dev/v1alpha1/namespaces/default/vlmservices"
        try:
            api("POST", path, service("before"))
            eventually(lambda: api("GET", f"{path}/before")["status"]["observedGeneration"] == 1)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(10)
            os.kill(pid, signal.SIGCONT)
            api("POST", path, service("after"))
            eventually(lambda: api("GET", f"{path}/after")["status"]["observedGeneration"] == 1, seconds=30)
            assert operator.running
            assert "Traceback" not in operator.said()
        finally:
            operator.stop(signal.SIGKILL)
