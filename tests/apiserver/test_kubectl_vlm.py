"""``kubectl vlm`` as kubectl's plugin, on a real API server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from unit.cli.builders import H100, node, service

if TYPE_CHECKING:
    from apiserver.conftest import Kubectl

Vlm = Callable[..., "subprocess.CompletedProcess[str]"]
PRODUCT = "NVIDIA-H100-OF-THIS-TEST"


@pytest.fixture
def hopper(kubectl: Kubectl) -> Iterator[str]:
    """A node of a product that no other test asks for."""
    name = "h100-of-this-test"
    made = node(name, H100 | {"nvidia.com/gpu.product": PRODUCT})
    kubectl("create", "-f", "-", stdin=made)
    kubectl("patch", f"node/{name}", "--subresource=status", "-p", json.dumps({"status": made["status"]}))
    # Nothing here says that the node is ready, so the API server's taint has to go.
    kubectl("taint", "node", name, "node.kubernetes.io/not-ready-")
    yield name
    kubectl("delete", f"node/{name}")


def test_plan_uses_the_clusters_nodes_and_the_commands_namespace(vlm: Vlm, hopper: str, namespace: str) -> None:
    done = vlm("plan", "-f", "-", "-o", "json", stdin=service(hardware={"products": [PRODUCT]}))
    assert (done.returncode, done.stderr) == (0, "")
    plan = json.loads(done.stdout)
    assert plan["hardware"]["nodes"] == [hopper]
    assert plan["service"]["namespace"] == namespace
    assert {m["metadata"]["namespace"] for m in plan["manifests"]} == {namespace}


def test_what_plan_prints_can_be_applied(vlm: Vlm, kubectl: Kubectl, hopper: str) -> None:
    manifests = vlm("plan", "-f", "-", "-o", "manifests", stdin=service(hardware={"products": [PRODUCT]})).stdout
    kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=manifests)


def test_plan_knows_whether_the_cluster_has_leader_worker_sets(vlm: Vlm, hopper: str) -> None:
    wide = service(hardware={"products": [PRODUCT]}, parallelism={"tensor": 16}, multinode={"nodeCount": 2})
    done = vlm("plan", "-f", "-", "-o", "json", stdin=wide)
    assert done.returncode == 1
    assert "LeaderWorkerSetMissing" in {f["reason"] for f in json.loads(done.stdout)["findings"]}


def test_a_service_that_is_not_there_is_said_in_one_line(vlm: Vlm, namespace: str) -> None:
    for command in ("explain", "status"):
        done = vlm(command, "nowhere")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: VLMService nowhere not found in namespace {namespace}: ")
        # kubectl passes the exit code on and may add a line of its own.
        assert "Traceback" not in done.stderr


def test_a_service_without_a_plan_points_to_status(vlm: Vlm, kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", stdin=service("fresh"))
    done = vlm("explain", "fresh")
    assert done.returncode == 1
    assert "has no plan yet" in done.stderr
    assert "The operator has not processed this service yet" in vlm("status", "fresh").stdout
