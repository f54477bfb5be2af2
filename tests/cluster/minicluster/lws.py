"""The real LeaderWorkerSet controller, as a process beside the API server."""

import base64
import json
import shutil
from pathlib import Path

from . import network
from .kube import Manifest, apply, documents, kubectl
from .paths import PKI, SHARE, tool
from .pki import MASTERS, Certificate
from .processes import Daemons
from .shell import Argument, attempt

PORT = 9443
# Only pods of a LeaderWorkerSet, so that no other pod waits for this controller.
OWN_PODS = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}


def certificates() -> list[Certificate]:
    return [
        Certificate("lws-manager", "lws-manager", MASTERS),
        Certificate("lws-webhook", "lws-webhook", addresses=("IP:127.0.0.1",)),
    ]


def start(daemons: Daemons, kubeconfig: Path) -> None:
    """Kinds first, then the controller, then its webhooks: each needs the one before."""
    kubectl("apply", "--server-side", "--force-conflicts", "-f", SHARE / "lws-crds.yaml")
    kubectl("wait", "--for=condition=Established", "--timeout=20s", "-f", SHARE / "lws-crds.yaml")
    apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lws-system"}}])
    folder = daemons.folder / "lws"
    folder.mkdir(exist_ok=True)
    for suffix in ("crt", "key"):
        shutil.copyfile(PKI / f"lws-webhook.{suffix}", folder / f"tls.{suffix}")
    config = folder / "config.yaml"
    settings = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": PORT, "certDir": str(folder)},
        "metrics": {"bindAddress": "127.0.0.1:8443"},
        "health": {"healthProbeBindAddress": "127.0.0.1:8081"},
    }
    config.write_text(json.dumps(settings, indent=1))
    command: list[Argument] = [
        "env",
        f"KUBECONFIG={kubeconfig}",
        tool("lws-manager"),
        f"--config={config}",
        "--zap-log-level=info",
    ]
    daemons.start("lws-manager", network.inside(command))
    probe = network.inside(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}"])
    daemons.wait_for("its webhooks answer", lambda: attempt(probe).returncode == 0, daemon="lws-manager", seconds=30)
    apply(webhooks())


def webhooks() -> list[Manifest]:
    """The module's own manifests, with the address of a process in place of a Service."""
    authority = base64.b64encode((PKI / "ca.crt").read_bytes()).decode()
    shown = kubectl("create", "--dry-run=client", "-o", "json", "-f", SHARE / "lws-webhooks.yaml")
    configurations = documents(shown)
    for configuration in configurations:
        configuration["metadata"]["name"] = f"lws-{configuration['metadata']['name']}"
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{PORT}{path}", "caBundle": authority}
            if webhook["name"].endswith("pod.kb.io"):
                webhook["objectSelector"] = OWN_PODS
    return configurations
