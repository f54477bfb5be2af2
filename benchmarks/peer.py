"""The peer of the operator's benchmark: the LeaderWorkerSet controller, as a process beside an API server."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import control_plane

from minicluster import pki
from minicluster.kube import documents, kubectl
from minicluster.paths import SHARE, tool
from minicluster.ports import free_port

PATH = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
MADE = "/apis/apps/v1/namespaces/default/statefulsets"


@dataclass(frozen=True)
class Peer:
    """A running controller, and what to create for it."""

    pid: int
    path: str = PATH
    made: str = MADE

    @staticmethod
    def manifest(name: str) -> dict[str, Any]:
        """A group of two pods, no replicas wanted, so that only the controller works."""
        pod = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
        group = {"size": 2, "workerTemplate": pod}
        return {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": name},
            "spec": {"replicas": 0, "leaderWorkerTemplate": group},
        }


@contextlib.contextmanager
def leader_worker_sets(folder: Path, kubeconfig: Path) -> Iterator[Peer]:
    """The controller with its kinds and webhooks while the block runs."""
    kubectl("apply", "--server-side", "-f", SHARE / "lws-crds.yaml", kubeconfig=kubeconfig)
    kubectl(
        "wait", "--for=condition=Established", "--timeout=60s", "-f", SHARE / "lws-crds.yaml", kubeconfig=kubeconfig
    )
    certificates = folder / "pki"
    pki.request(certificates, "tls", "/CN=lws", "subjectAltName=IP:127.0.0.1", signed=True)
    port = free_port()
    settings = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": port, "certDir": str(certificates)},
        "metrics": {"bindAddress": f"127.0.0.1:{free_port()}"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{(health := free_port())}"},
    }
    config = folder / "lws.json"
    config.write_text(json.dumps(settings))
    command = ["env", f"KUBECONFIG={kubeconfig}", str(tool("lws-manager")), f"--config={config}"]
    with (folder.parent / "lws.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        control_plane.until(lambda: _answers(port) and _answers(health), 60, "the peer's webhooks answer", 0.2)
        for configuration in _webhooks(certificates, port, kubeconfig):
            group = f"/apis/admissionregistration.k8s.io/v1/{configuration['kind'].lower()}s"
            control_plane.Api(_server(kubeconfig), certificates)("POST", group, configuration)
        yield Peer(process.pid)
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _server(kubeconfig: Path) -> str:
    return str(json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


def _webhooks(certificates: Path, port: int, kubeconfig: Path) -> list[dict[str, Any]]:
    """The module's own manifests, with the address of a process in place of a Service."""
    authority = base64.b64encode((certificates / "ca.crt").read_bytes()).decode()
    shown = kubectl(
        "create", "--dry-run=client", "-o", "json", "-f", SHARE / "lws-webhooks.yaml", kubeconfig=kubeconfig
    )
    configurations = documents(shown)
    for configuration in configurations:
        configuration["metadata"]["name"] = f"lws-{configuration['metadata']['name']}"
        configuration["webhooks"] = [w for w in configuration["webhooks"] if not w["name"].endswith("pod.kb.io")]
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
    return [c for c in configurations if c["webhooks"]]
