"""Where everything lies. All state is below one folder of the checkout that git ignores."""

import os
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
REPOSITORY = SOURCE.parent.parent

STATE = REPOSITORY / ".cluster"
BIN = STATE / "bin"
CNI = STATE / "cni"
SHARE = STATE / "share"  # files of Go modules that a running cluster needs
TOOLS = STATE / "tools"
IMAGES = STATE / "images"
ENGINE = STATE / "engine"
MODELS = STATE / "models"
STAMPS = STATE / "stamps"
BUILD_LOGS = STATE / "logs"
PKI = STATE / "pki"
CONTAINERD = STATE / "containerd"  # image store, kept between runs
RUN = STATE / "run"  # everything else of a running cluster, wiped by each start
KUBECONFIG = STATE / "kubeconfig"

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
ASSETS_TOOLS = ("etcd", "kube-apiserver", "kubectl")


def tool(name: str) -> Path:
    """The program of that name: from KUBEBUILDER_ASSETS where that has it, else the one built here."""
    assets = os.environ.get(ASSETS_VARIABLE)
    if assets and name in ASSETS_TOOLS and (Path(assets) / name).is_file():
        return Path(assets) / name
    return BIN / name
