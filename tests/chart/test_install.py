"""The chart on a real API server: installed, asked for its rights, removed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart.rendering import CHART, IMAGE, REPOSITORY, helm, only, render_chart
from minicluster.local import apiserver
from minicluster.paths import tool

NAMESPACE = "vlm-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:vlm-operator"
CRD = "crd/vlmservices.vlmserve.dev"
EXAMPLE = REPOSITORY / "examples" / "qwen3-vl-h100.yaml"


class Cluster:
    """kubectl and Helm for one API server."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = str(kubeconfig)

    def attempt(self, *arguments: str, manifest: Any = None) -> subprocess.CompletedProcess[str]:
        command = [str(tool("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=json.dumps(manifest), capture_output=True, text=True, check=False)

    def kubectl(self, *arguments: str, manifest: Any = None) -> str:
        done = self.attempt(*arguments, manifest=manifest)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def helm(self, command: str, values: dict[str, Any] | None = None) -> str:
        common = ["--namespace", NAMESPACE, "--kubeconfig", self.kubeconfig]
        if command == "uninstall":
            return helm("uninstall", "vlm-operator", *common)
        return helm(command, "vlm-operator", str(CHART), *common, values={**IMAGE, **(values or {})})

    def may(self, verb: str, resource: str, namespace: str = "default") -> bool:
        done = self.attempt("auth", "can-i", verb, resource, f"--as={ACCOUNT}", f"--namespace={namespace}")
        assert done.stdout.strip() in ("yes", "no"), done.stderr
        return done.stdout.strip() == "yes"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server that has never seen the chart; the operator's namespace admits restricted pods only."""
    with apiserver(tmp_path_factory.mktemp("chart")) as server:
        found = Cluster(server.kubeconfig)
        found.kubectl("create", "namespace", NAMESPACE)
        found.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        yield found


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[Cluster]:
    cluster.helm("install")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", CRD)
    yield cluster
    cluster.helm("uninstall")


def test_the_api_server_takes_the_whole_chart_and_then_services(installed: Cluster) -> None:
    service = yaml.safe_load(EXAMPLE.read_text())
    installed.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", manifest=service)


def test_the_pod_is_admitted_where_only_restricted_pods_are(installed: Cluster) -> None:
    template = only(render_chart(), "Deployment")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
    installed.kubectl("create", "--dry-run=server", f"--namespace={NAMESPACE}", "-f", "-", manifest=pod)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("watch", "vlmservices.vlmserve.dev"),
        ("patch", "vlmservices.vlmserve.dev/status"),
        ("watch", "nodes"),
        ("watch", "pods"),
        ("create", "deployments.apps"),
        ("create", "events"),
    ],
)
def test_the_operator_may(installed: Cluster, verb: str, resource: str) -> None:
    assert installed.may(verb, resource)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("create", "pods"),
        ("create", "pods/exec"),
        ("patch", "nodes"),
        ("patch", "vlmservices.vlmserve.dev"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io"),
        ("create", "leases.coordination.k8s.io"),
    ],
)
def test_the_operator_may_not(installed: Cluster, verb: str, resource: str) -> None:
    assert not installed.may(verb, resource)


def test_the_operator_holds_its_own_lease_and_no_other(installed: Cluster) -> None:
    assert installed.may("create", "leases.coordination.k8s.io", NAMESPACE)
    assert installed.may("update", "leases.coordination.k8s.io/vlm-operator", NAMESPACE)
    assert not installed.may("update", "leases.coordination.k8s.io/somebody-else", NAMESPACE)


def test_removing_the_release_leaves_the_services_and_a_new_one_finds_them(cluster: Cluster) -> None:
    cluster.helm("install")
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", CRD)
    cluster.kubectl("create", "-f", str(EXAMPLE))
    cluster.helm("uninstall")
    assert cluster.kubectl("get", CRD, "-o", "name")
    assert cluster.kubectl("get", "vlmservices", "qwen3-vl-h100", "-o", "name")
    assert "not found" in cluster.attempt("get", "deployment", "vlm-operator", f"--namespace={NAMESPACE}").stderr
    assert "not found" in cluster.attempt("get", "clusterrole", "vlm-operator").stderr

    cluster.helm("install")
    assert cluster.kubectl("get", "vlmservices", "qwen3-vl-h100", "-o", "name")
    cluster.kubectl("delete", "vlmservices", "qwen3-vl-h100")
    cluster.helm("uninstall")


def test_an_upgrade_brings_the_crd_up_to_date(installed: Cluster) -> None:
    older = json.dumps([{"op": "replace", "path": "/spec/names/categories", "value": ["old"]}])
    installed.kubectl("patch", CRD, "--type=json", "-p", older)
    installed.helm("upgrade")
    categories = installed.kubectl("get", CRD, "-o", "jsonpath={.spec.names.categories}")
    assert json.loads(categories) == ["all", "vlm"]
