"""Builds and starts the one-node cluster on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from demo.commands import REPOSITORY, STATE, Cluster, follow, run, together, write_log
from demo.screen import DemoError, Screen

SCRIPT: list[str | Path] = [sys.executable, REPOSITORY / "tests" / "cluster" / "cluster.py"]
OTHER_WAY = "or use your own cluster: make demo KUBECONFIG=PATH IMAGE=YOUR-REGISTRY/vlm-operator:TAG"


def check_prerequisites() -> None:
    """Reports everything that is missing before any download. Root installs Debian packages."""
    install = ["--install"] if os.geteuid() == 0 else []
    command = [str(part) for part in (*SCRIPT, "check", *install)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    write_log(done.stdout + done.stderr)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().removeprefix("error:").strip()
        raise DemoError(f"{reason}\n  - {OTHER_WAY}")


def build(screen: Screen) -> None:
    """Builds programs and images (limited by the CPU) while the engine is downloaded (limited by the network)."""
    together(
        [
            (screen, [*SCRIPT, "build"], "programs", "building the cluster's programs"),
            (screen, [*SCRIPT, "images"], "images", "making the images"),
        ],
        [(screen, [*SCRIPT, "engine"], "engine", "installing the engine")],
    )


def start(screen: Screen) -> Cluster:
    """Starts the cluster, with claims for engine and models in namespace default and a simulated GPU node."""
    follow(screen, [*SCRIPT, "up"], label="cluster", what="starting the cluster")
    run([*SCRIPT, "volumes", "default"], what="making the volumes")
    run([*SCRIPT, "gpu-nodes", "h100"], what="making the simulated GPU node")
    return Cluster.at(STATE / "kubeconfig")


def operator_build() -> str:
    """A hash of the operator's image, so that a new image with the same tag restarts the operator."""
    stamp = STATE / "stamps" / "image-operator"
    return stamp.read_text()[:16] if stamp.is_file() else ""
