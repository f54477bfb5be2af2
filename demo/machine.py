"""The one-node cluster on this machine: prerequisites, programs, images, engine, start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from demo.commands import REPOSITORY, STATE, Cluster, follow, run, together, write_log
from demo.screen import DemoError, Screen

SCRIPT: list[str | Path] = [sys.executable, REPOSITORY / "tests" / "cluster" / "cluster.py"]
OTHER_WAY = "or show it in a cluster that you have: make demo KUBECONFIG=PATH IMAGE=YOUR-REGISTRY/vlm-operator:TAG"


def check_prerequisites() -> None:
    """Everything that is missing at once, before anything is downloaded. Installs Debian packages when run by root."""
    install = ["--install"] if os.geteuid() == 0 else []
    command = [str(part) for part in (*SCRIPT, "check", *install)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    write_log(done.stdout + done.stderr)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().removeprefix("error:").strip()
        raise DemoError(f"{reason}\n  - {OTHER_WAY}")


def build(screen: Screen) -> None:
    """Programs and images on one side, the engine's download on the other: the first waits for the processor, the
    second for the network."""
    together(
        [
            (screen, [*SCRIPT, "build"], "programs", "building the cluster's programs"),
            (screen, [*SCRIPT, "images"], "images", "making the images"),
        ],
        [(screen, [*SCRIPT, "engine"], "engine", "installing the engine")],
    )


def start(screen: Screen) -> Cluster:
    """The cluster, up, with the claims for engine and models in namespace default and one simulated GPU node."""
    follow(screen, [*SCRIPT, "up"], label="cluster", what="starting the cluster")
    run([*SCRIPT, "volumes", "default"], what="making the volumes")
    run([*SCRIPT, "gpu-nodes", "h100"], what="making the simulated GPU node")
    return Cluster.at(STATE / "kubeconfig")


def operator_build() -> str:
    """What the operator's image was made from; a change of it has to restart the operator, whose tag stays."""
    stamp = STATE / "stamps" / "image-operator"
    return stamp.read_text()[:16] if stamp.is_file() else ""
