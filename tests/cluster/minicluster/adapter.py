"""The real prometheus-adapter beside the cluster: a program of this machine, as Prometheus is, which the API server asks.

It is registered as its own chart does it: as version v1beta1 of the API, without a check of its certificate.
"""

import json
import shutil
from collections.abc import Sequence
from typing import Any, Final

from . import network
from .errors import ClusterError
from .kube import Manifest, apply, kubectl, succeeds
from .paths import KUBECONFIG, RUN, tool
from .ports import free_port
from .processes import Daemons

NAME: Final = "prometheus-adapter"
NAMESPACE: Final = "kube-system"
GROUP: Final = "custom.metrics.k8s.io"
API: Final = f"v1beta1.{GROUP}"
# How often it asks which series there are, and how long ago the last sample may be; its chart says one minute.
RELIST: Final = "5s"


def start(rules: Sequence[Any], prometheus_url: str) -> None:
    """Starts it, anew if it runs, with these rules; returns when the API server gets answers from it."""
    daemons = Daemons(RUN)
    if daemons.pid("kube-apiserver") is None:
        raise ClusterError("the cluster is not up", hint="python3 tests/cluster/cluster.py up")
    daemons.stop([NAME], seconds=10)
    folder = RUN / NAME
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = folder / "rules.yaml"
    config.write_text(json.dumps({"rules": list(rules)}))  # JSON is YAML as well
    port = free_port()
    # Its rights are the administrator's: what its chart grants it is that chart's concern.
    flags = [f"--{use}kubeconfig={KUBECONFIG}" for use in ("lister-", "authentication-", "authorization-")]
    flags += [
        f"--bind-address={network.HOST_IP}",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        f"--config={config}",
        f"--prometheus-url={prometheus_url}",
        f"--metrics-relist-interval={RELIST}",
        "--v=2",
    ]
    daemons.start(NAME, [tool(NAME), *flags])
    apply(registration(port))
    daemons.wait_for(
        "the custom metrics API answers",
        lambda: succeeds("get", f"--raw=/apis/{GROUP}/v1beta1"),
        daemon=NAME,
        seconds=60,
    )


def stop() -> None:
    """Ends it and takes its API away, without which the API server's discovery would be incomplete."""
    kubectl("delete", "apiservice", API, "--ignore-not-found", "--timeout=30s")
    kubectl("delete", "service", NAME, f"--namespace={NAMESPACE}", "--ignore-not-found", "--timeout=30s")
    Daemons(RUN).stop([NAME], seconds=10)


def registration(port: int) -> list[Manifest]:
    """What sends requests for the API to the program; it listens at this machine's end of the link to the cluster."""
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": network.HOST_IP},
    }
    api: Manifest = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API},
        "spec": {
            "group": GROUP,
            "version": "v1beta1",
            "service": {"name": NAME, "namespace": NAMESPACE, "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    return [service, api]
