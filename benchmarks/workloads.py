"""Beside an API server alone: Kubernetes' controllers, its scheduler, and KWOK, which plays the kubelets of all nodes.

What a simulated pod's runtime would answer, one small server answers for all of them: their addresses are made addresses of
this machine while the block runs, which needs root.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import control_plane

from minicluster import control_plane as programs
from minicluster.errors import ClusterError
from minicluster.network import SIMULATED_PODS
from minicluster.paths import SHARE, tool
from minicluster.ports import LOOPBACK, free_port
from minicluster.shell import Argument
from vlm_api.names import RUNTIME_PORT
from vlm_api.report import Phase, Report

ROUTE = ["local", SIMULATED_PODS.replace(".1/", ".0/"), "dev", "lo"]
# Heartbeats of a thousand nodes are work of their own for the API server; without them, nobody may miss them.
CONTROLLERS = "*,-node-lifecycle-controller"
_READY = Report(plan_hash="", phase=Phase.READY, ready=True, settings_read=True, elapsed_seconds=0, budget_seconds=1)


@contextlib.contextmanager
def kubernetes(folder: Path, kubeconfig: Path) -> Iterator[dict[str, int]]:
    """The process of each program, by name. Raises ClusterError without root."""
    if os.geteuid() != 0:
        raise ClusterError("addresses of simulated pods need root", hint="run it as root, or with an empty --available")
    manager = [*programs.controller_manager(folder / "pki", kubeconfig), f"--controllers={CONTROLLERS}"]
    commands: dict[str, list[Argument]] = {
        "kube-controller-manager": [*manager, *_listening()],
        "kube-scheduler": [*programs.scheduler(kubeconfig), *_listening()],
        "kwok": [
            tool("kwok"),
            f"--kubeconfig={kubeconfig}",
            f"--config={SHARE}/kwok-stages.yaml",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=0",
            f"--cidr={SIMULATED_PODS}",
            f"--server-address={LOOPBACK}:{free_port()}",
        ],
    }
    started: dict[str, subprocess.Popen[bytes]] = {}
    with _runtimes():
        try:
            for name, command in commands.items():
                with (folder.parent / f"{name}.log").open("wb") as log:
                    started[name] = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
            yield {name: process.pid for name, process in started.items()}
        finally:
            for process in started.values():
                process.kill()
                process.wait()


def _listening() -> list[str]:
    return [f"--bind-address={LOOPBACK}", f"--secure-port={free_port()}"]


@contextlib.contextmanager
def _runtimes() -> Iterator[None]:
    """Every simulated pod says that its engine was asked, and tells no setting."""
    said = _READY.model_dump_json(by_alias=True).encode()

    class Runtime(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("0.0.0.0", RUNTIME_PORT), Runtime)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    subprocess.run(["ip", "route", "replace", *ROUTE], check=True)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        subprocess.run(["ip", "route", "del", *ROUTE], check=False)


class Serving(control_plane.Arrivals):
    """When each service came to serve: available and ready, by the column that people look at."""

    accept = "application/json;as=Table;g=meta.k8s.io;v=v1"

    def __init__(self, api: control_plane.Api) -> None:
        super().__init__(api)
        self._column = 0

    def note(self, plural: str, event: dict[str, Any]) -> str:
        table = event["object"]
        for number, column in enumerate(table.get("columnDefinitions") or []):
            if column["name"] == "Status":
                self._column = number
        for row in table["rows"]:
            name = row["object"]["metadata"]["name"]
            if row["cells"][self._column] == "Serving":
                self.seen.setdefault(f"{plural}/{name}", []).append((time.monotonic(), event["type"]))
        return str(table["metadata"]["resourceVersion"])
