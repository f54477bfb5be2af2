"""The operator as a process: started, killed, stopped, doubled, with the chart's rights, and idle."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apiserver.operating import IMAGE, QWEN, TRAFFIC, Operator, World, add_node, eventually, settled_writes, writes
from chart.rendering import render_chart

from minicluster import pki
from minicluster.paths import SHARE

IDLE_SECONDS = 20
ACCOUNT = "system:serviceaccount:vlm-system:vlm-operator"
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "weights"},
    "spec": {"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "100Gi"}}},
}

Start = Callable[..., Operator]


def test_a_killed_operator_that_comes_back_writes_nothing(start: Start, world: World, kubectl: Any):
    first = start("--no-leader-election")
    world.starts(scaling={"maxReplicas": 4}, template=everything_by_default())
    world.serving()
    world.wait_for("True", "ReplicasAvailable", "Available")
    first.stop(signal.SIGKILL)
    before, versions = settled_writes(kubectl), world.versions()
    second = start("--no-leader-election")
    eventually(lambda: second.metric("vlm_operator_reconciles_total") >= 1)
    assert settled_writes(kubectl) == before
    assert world.versions() == versions


def test_a_newer_operator_replaces_no_pod_until_the_spec_changes(start: Start, world: World):
    first = start("--no-leader-election")
    world.starts()
    before = world.plan_hash()
    world.pod("vlm-0", node="anywhere")
    first.stop()
    versions = world.versions()
    newer = start("--no-leader-election", "--runtime-image", "registry.example/vlm-operator:2")
    eventually(lambda: newer.metric("vlm_operator_reconciles_total") >= 1)
    time.sleep(1)
    assert world.versions() == versions
    world.apply(workload={"concurrency": 64})
    eventually(lambda: world.plan_hash() != before)
    (install,) = world.get("deployment")["spec"]["template"]["spec"]["initContainers"]
    assert install["image"] == "registry.example/vlm-operator:2"


def test_an_unchanged_service_costs_no_write(start: Start, world: World, kubectl: Any):
    operator = start("--no-leader-election")
    world.starts(template=everything_by_default())
    world("annotate", "deployment", "vlm", "somebody=else")
    eventually(lambda: operator.metric("vlm_operator_reconciles_total") >= 2)
    before, reconciled = settled_writes(kubectl), operator.metric("vlm_operator_reconciles_total")
    time.sleep(IDLE_SECONDS)
    assert writes(kubectl) == before
    assert operator.metric("vlm_operator_reconciles_total") == reconciled, "events of its own making keep it busy"


def test_an_optional_kind_that_goes_holds_up_no_service(start: Start, world: World, kubectl: Any):
    kinds = str(SHARE / "lws-crds.yaml")
    kubectl("apply", "--server-side", "-f", kinds)
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", kinds)
    start("--no-leader-election")
    world.starts()
    kubectl("delete", "-f", kinds)
    world.starts("second")


def test_sigterm_ends_it_cleanly_and_gives_the_lease_back(start: Start, world: World):
    operator = start()
    world.starts()
    asked = time.monotonic()
    assert operator.stop() == 0
    assert time.monotonic() - asked < 5
    assert lease(world)["holderIdentity"] == ""
    assert "Traceback" not in operator.said()


def test_it_needs_no_more_rights_than_the_chart_gives(
    start: Start, world: World, kubectl: Any, api_server: Any, tmp_path: Path
):
    operator = start("--no-leader-election", kubeconfig=with_the_charts_rights(kubectl, api_server, world, tmp_path))
    add_node(kubectl, f"node-of-{world.namespace}", "h100")
    world.apply(workload=TRAFFIC, replicas=2, metrics={"podMonitor": True})
    world.wait_for("True", "HardwareFound", "HardwareResolved")
    before = world.plan_hash()
    world.apply(workload={"concurrency": 64}, scaling={"maxReplicas": 3}, replicas=1)
    eventually(lambda: world.exists("hpa") and not world.exists("configmap", f"vlm-plan-{before}"))
    eventually(lambda: "KindMissing" in world("get", "events.events.k8s.io", "-o", "json"))
    world.apply("unknown", model={"uri": "hf://org/model"})
    job = world.inspecting_job("unknown")
    world.answers(job, {"failure": {"reason": "ModelNotFound", "message": "there is no such model"}})
    eventually(lambda: world.exists("deployment", "unknown") and not world.exists("job", job))
    world("create", "-f", "-", stdin=CLAIM)
    world.apply("claimed", model={**QWEN, "cacheClaim": "weights"}, replicas=2)
    world.wait_for("False", "ClaimForOnePod", name="claimed")
    assert "forbidden" not in operator.said()
    assert operator.metric("vlm_operator_errors_total") == 0
    assert operator.stop() == 0
    kubectl("delete", "node", f"node-of-{world.namespace}")


def test_a_namespace_whose_rights_go_stops_no_other_and_is_served_again_when_they_are_back(
    start: Start, world: World, kubectl: Any, api_server: Any, tmp_path: Path
):
    other = World(kubectl, f"{world.namespace}-other")
    kubectl("create", "namespace", other.namespace)
    rights = with_the_charts_rights(kubectl, api_server, world, tmp_path, other.namespace)
    options = ("--no-leader-election", "--namespace", other.namespace)
    operator = start(*options, kubeconfig=rights)
    for each in (world, other):
        each.starts()
    binding = json.loads(other("get", "rolebindings", "-o", "json"))["items"]
    # As with the namespace itself, of which no controller is here to take out what is in it.
    other("delete", "rolebindings", "--all")
    told = f"namespace {other.namespace} is not served until it can be read"
    eventually(lambda: told in operator.said(), seconds=60, what=operator.said)
    world.starts("second")
    assert operator.said().count(told) == 1
    assert operator.stop() == 0
    operator = start(*options, kubeconfig=rights)
    world.starts("third")
    for found in binding:
        metadata = {"name": found["metadata"]["name"]}
        other("create", "-f", "-", stdin={**found, "metadata": metadata})
    other.apply("later", workload=TRAFFIC)
    other.wait_for("False", "Starting", name="later", seconds=90)
    assert operator.running
    assert "Traceback" not in operator.said()
    assert operator.stop() == 0
    other("delete", "vlms", "--all")


def test_without_rights_it_says_so_and_ends_with_an_error(api_server: Any, tmp_path: Path):
    folder = api_server.kubeconfig.parent / "pki"
    pki.request(folder, "nobody", "/CN=nobody", "extendedKeyUsage=clientAuth", signed=True)
    pki.write_kubeconfig(tmp_path / "kubeconfig", folder, "nobody", api_server.url)
    done = run("--runtime-image", IMAGE, "--no-leader-election", "--metrics-address", "127.0.0.1:1", KUBECONFIG="/none")
    assert done.returncode == 1
    done = run("--runtime-image", IMAGE, "--no-leader-election", KUBECONFIG=str(tmp_path / "kubeconfig"))
    assert done.returncode == 1
    assert "nodes is forbidden" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--runtime-image"),
        (["--runtime-image", "x", "--metrics-address", "8080"], "[HOST]:PORT"),
        (["--runtime-image", "x", "--log-level", "loud"], "loud"),
        (["--runtime-image", "x", "--profiles", "/no/such/folder"], "/no/such/folder: cannot be read"),
    ],
)
def test_wrong_options_are_refused_in_words(options: list[str], says: str):
    done = run(*options)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("VLM_OPERATOR_")}
    command = [sys.executable, "-m", "vlm_operator", *options]
    return subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=60)


def lease(world: World) -> dict[str, Any]:
    return dict(json.loads(world("get", "lease", "vlm-operator", "-o", "json"))["spec"])


def everything_by_default() -> dict[str, Any]:
    """A template whose values the API server leaves out or writes in another way: a trap for who compares."""
    main = {
        "name": "main",
        "tty": False,
        "env": [{"name": "EMPTY", "value": ""}],
        "resources": {"requests": {"memory": "1024Mi", "cpu": 0.5}, "limits": {"memory": "65536Mi"}},
    }
    return {"spec": {"hostNetwork": False, "containers": [main], "imagePullSecrets": [{"name": "x"}]}}


def with_the_charts_rights(kubectl: Any, api_server: Any, world: World, folder: Path, *others: str) -> Path:
    """A kubeconfig of somebody who has the roles that the chart brings, and nothing else."""
    manifests = render_chart({"watchNamespaces": [world.namespace, *others]}, namespace="vlm-system")
    kubectl.attempt("create", "namespace", "vlm-system")
    for manifest in manifests:
        if manifest["apiVersion"].startswith("rbac"):
            kubectl("apply", "-f", "-", stdin=manifest)
    certificates = api_server.kubeconfig.parent / "pki"
    pki.request(certificates, "operator", f"/CN={ACCOUNT}", "extendedKeyUsage=clientAuth", signed=True)
    pki.write_kubeconfig(folder / "operator.kubeconfig", certificates, "operator", api_server.url)
    return folder / "operator.kubeconfig"


def test_a_second_replica_that_a_claim_forbids_is_told_and_not_asked_for(start: Start, world: World):
    start("--no-leader-election")
    world("create", "-f", "-", stdin=CLAIM)
    model = {**QWEN, "cacheClaim": "weights"}
    world.starts(model=model)
    world.pod("vlm-0", node="anywhere", phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    world.serving()
    world.wait_for("True", "Serving")
    before = world.plan_hash()
    world.apply(model=model, workload=TRAFFIC, replicas=2, rolloutStrategy={"maxUnavailable": 2})
    world.wait_for("False", "ClaimForOnePod")
    assert world.condition("Available")[:2] == ("True", "ReplicasAvailable")
    deployment = world.get("deployment")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 2, "only what is forbidden is passed over"
    world.apply(model=model, workload=TRAFFIC, replicas=1)
    world.serving()
    world.wait_for("True", "Serving")
    assert world.plan_hash() == before
