"""Simulated nodes: KWOK plays the kubelet of every node annotated `kwok.x-k8s.io/node=fake`."""

import re
from pathlib import Path

from . import network
from .errors import ClusterError
from .kube import kubectl
from .paths import SHARE, SOURCE, tool
from .pki import MASTERS, Certificate
from .processes import Daemons
from .shell import attempt

PRESETS = SOURCE / "nodes"
PORT = 10247  # as a kubelet's, one further than what is free there


def certificates() -> list[Certificate]:
    return [Certificate("kwok", "kwok", MASTERS)]


def start(daemons: Daemons, kubeconfig: Path) -> None:
    flags = [
        f"--kubeconfig={kubeconfig}",
        f"--config={SHARE}/kwok-stages.yaml",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        f"--node-ip={network.NODE_IP}",
        f"--node-port={PORT}",
        f"--server-address={network.NODE_IP}:{PORT}",
        f"--cidr={network.SIMULATED_PODS}",
    ]
    daemons.start("kwok", network.inside([tool("kwok"), *flags]))
    probe = network.inside(["bash", "-c", f"exec 3<>/dev/tcp/{network.NODE_IP}/{PORT}"])
    daemons.wait_for("kwok answers", lambda: attempt(probe).returncode == 0, daemon="kwok", seconds=30)


def create_nodes(preset: str, count: int) -> None:
    """Simulated GPU nodes PRESET-0, PRESET-1, ... with the labels that GPU feature discovery writes."""
    manifest = PRESETS / f"{preset}.yaml"
    if not manifest.is_file():
        known = ", ".join(sorted(path.stem for path in PRESETS.glob("*.yaml")))
        raise ClusterError(f"no simulated node {preset}", hint=f"choose from {known}")
    text = manifest.read_text()
    for index in range(count):
        # Client-side apply: the server ignores a node's status when it is created by server-side apply.
        kubectl("apply", "-f", "-", stdin=re.sub(rf"\b{preset}-0\b", f"{preset}-{index}", text))
    names = [f"node/{preset}-{index}" for index in range(count)]
    kubectl("wait", "--for=condition=Ready", "--timeout=30s", *names)
