"""Installs the chart on a real API server with kubectl and Helm."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chart.rendering import CHART, IMAGE, helm

from minicluster.local import apiserver
from minicluster.paths import tool

NAMESPACE = "vlm-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:vlm-operator"
CRD = "crd/vlmservices.vlmserve.dev"


class Cluster:
    """One API server, without nodes or controllers."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = str(kubeconfig)

    def attempt(self, *arguments: str, manifest: Any = None) -> subprocess.CompletedProcess[str]:
        command = [str(tool("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(command, input=json.dumps(manifest), capture_output=True, text=True, check=False)

    def kubectl(self, *arguments: str, manifest: Any = None) -> str:
        done = self.attempt(*arguments, manifest=manifest)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def helm(self, command: str, *, chart: Path = CHART, values: dict[str, Any] | None = None) -> None:
        """Runs install, upgrade or uninstall. After the first two, waits until the CRD is established."""
        common = ["--namespace", NAMESPACE, "--kubeconfig", self.kubeconfig]
        if command == "uninstall":
            helm("uninstall", "vlm-operator", *common)
            return
        helm(command, "vlm-operator", str(chart), *common, values={**IMAGE, **(values or {})})
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", CRD)

    def may(self, verb: str, resource: str, *, subresource: str = "", namespace: str = "default") -> bool:
        """Whether the operator's ServiceAccount has this permission."""
        what = [verb, resource, f"--subresource={subresource}", f"--as={ACCOUNT}", f"--namespace={namespace}"]
        answer = self.attempt("auth", "can-i", *what)
        assert answer.stdout.strip() in ("yes", "no"), answer.stderr
        return answer.stdout.strip() == "yes"


@contextmanager
def empty_cluster(folder: Path) -> Iterator[Cluster]:
    """An API server without the chart. The operator's namespace admits restricted pods only."""
    with apiserver(folder) as server:
        cluster = Cluster(server.kubeconfig)
        cluster.kubectl("create", "namespace", NAMESPACE)
        cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        yield cluster
