"""``kubectl vlm`` as kubectl's plugin, on a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from unit.cli.builders import H100, node, service

from minicluster.paths import tool

if TYPE_CHECKING:
    from apiserver.conftest import Kubectl

Vlm = Callable[..., "subprocess.CompletedProcess[str]"]
PRODUCT = "NVIDIA-H100-OF-THIS-TEST"


@pytest.fixture
def vlm(kubectl: Kubectl, namespace: str) -> Vlm:
    """``vlm("plan", ...)`` in a namespace of the test's own."""
    search = os.pathsep.join([str(Path(sys.executable).parent), str(tool("kubectl").parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": search,
        "KUBECONFIG": str(kubectl.kubeconfig),
        "NO_COLOR": "1",
        "COLUMNS": "140",
    }

    def run(*arguments: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        command = [str(tool("kubectl")), "vlm", *arguments, "--namespace", namespace]
        text = None if stdin is None else json.dumps(stdin)
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, env=environment)

    return run


@pytest.fixture
def hopper(kubectl: Kubectl) -> Iterator[str]:
    """A node of a product that no other test asks for."""
    made = node("h100-of-this-test", H100 | {"nvidia.com/gpu.product": PRODUCT})
    kubectl("create", "-f", "-", stdin=made)
    kubectl(
        "patch",
        f"node/{made['metadata']['name']}",
        "--subresource=status",
        "-p",
        json.dumps({"status": made["status"]}),
    )
    # Nothing here says that the node is ready, so the API server's taint has to go.
    kubectl("taint", "node", made["metadata"]["name"], "node.kubernetes.io/not-ready-")
    yield made["metadata"]["name"]
    kubectl("delete", f"node/{made['metadata']['name']}")


@pytest.fixture
def serving(kubectl: Kubectl, namespace: str) -> str:
    """A VLMService with the status of one that serves with another value than planned."""
    kubectl("create", "-n", namespace, "-f", "-", stdin=service("serving"))
    plan = {
        "hash": "0123abcd",
        "engine": {"version": "0.5.23", "image": "lmsysorg/sglang:v0.5.23"},
        "hardware": {"device": "cuda", "product": PRODUCT},
        "settings": [
            {
                "name": "prefill_decode_interval",
                "value": 22,
                "applied": True,
                "source": "profile",
                "rule": "r",
                "reason": "measured",
            }
        ],
    }
    status = {
        "observedGeneration": 1,
        "plan": plan,
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "EngineIgnoredSetting",
                "message": "prefill_decode_interval is 1: see explain",
                "lastTransitionTime": "2025-11-29T12:00:00Z",
            }
        ],
        "effective": {
            "pod": "serving-0",
            "agrees": False,
            "settings": [{"name": "prefill_decode_interval", "planned": 22, "effective": 1}],
        },
    }
    patch = json.dumps({"status": status})
    kubectl("patch", "vlms/serving", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    return "serving"


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


def test_explain_shows_planned_beside_effective(vlm: Vlm, serving: str) -> None:
    done = vlm("explain", serving)
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("  prefill_decode_interval  ")]
    assert row.split() == ["prefill_decode_interval", "22", "1", "profile", "measured"]
    assert "pod serving-0 uses other values than planned" in done.stdout


def test_status_ends_with_the_next_step(vlm: Vlm, serving: str) -> None:
    done = vlm("status", serving)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].split() == ["serving", "in", done.stdout.split()[2], "EngineIgnoredSetting"]
    assert done.stdout.splitlines()[-1].strip() == "prefill_decode_interval is 1: see explain"


def test_a_service_that_is_not_there_is_said_in_one_line(vlm: Vlm, namespace: str) -> None:
    for command in ("explain", "status"):
        done = vlm(command, "nowhere")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"error: there is no VLMService nowhere in namespace {namespace}: ")
        # kubectl passes the exit code on and may add a line of its own.
        assert "Traceback" not in done.stderr


def test_a_service_without_a_plan_points_to_status(vlm: Vlm, kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-n", namespace, "-f", "-", stdin=service("fresh"))
    done = vlm("explain", "fresh")
    assert done.returncode == 1
    assert "has no plan yet" in done.stderr
    assert "The operator has not looked at it yet" in vlm("status", "fresh").stdout


def test_a_context_that_is_not_there_is_said_in_one_line(vlm: Vlm) -> None:
    done = vlm("status", "x", "--context", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "nowhere" in done.stderr
