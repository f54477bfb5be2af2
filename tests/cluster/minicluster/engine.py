"""The real engine: its published wheels, unchanged, and a tiny model that it serves on a CPU."""

import re
import shutil

from . import stamps
from .errors import ClusterError
from .paths import BUILD_LOGS, ENGINE, MODELS, SOURCE
from .python import install_into, interpreter
from .shell import run_long, say

CONSTRAINTS = SOURCE / "engine-constraints.txt"
MODEL_SCRIPT = SOURCE / "make_tiny_model.py"
MODEL = MODELS / "tiny-qwen3-vl"
MOUNT = "/opt/sglang"  # where the pods see ENGINE


def version() -> str:
    found = re.search(r"^sglang==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{CONSTRAINTS} does not pin sglang")
    return found.group(1)


def install() -> None:
    """Engine (about 9 GB) and model; nothing to do when both are there and their inputs unchanged."""
    install_wheels()
    make_model()
    say(f"engine {version()} ready in {ENGINE}, model in {MODEL}")


def install_wheels() -> None:
    value = stamps.fingerprint([CONSTRAINTS])
    if ENGINE.is_dir() and stamps.is_current("engine", value):
        return
    fresh = ENGINE.with_name("engine.new")
    shutil.rmtree(fresh, ignore_errors=True)
    run_long(
        f"installing sglang {version()} and what it needs, about 9 GB",
        [*install_into(fresh), "--constraint", CONSTRAINTS, f"sglang=={version()}"],
        BUILD_LOGS / "engine-install.log",
        hint="the package index must be reachable once",
    )
    # Pods mount the folder read-only, and would otherwise compile thousands of files at each start.
    run_long(
        "compiling the engine's byte code",
        [interpreter(), "-m", "compileall", "-q", "-j", "0", "-s", fresh, "-p", MOUNT, fresh],
        BUILD_LOGS / "engine-compile.log",
        accepted=(0, 1),  # 1: some files are templates, or for a newer Python; nothing imports those
    )
    shutil.rmtree(ENGINE, ignore_errors=True)
    fresh.rename(ENGINE)
    stamps.set_current("engine", value)


def make_model() -> None:
    value = stamps.fingerprint([CONSTRAINTS, MODEL_SCRIPT])
    if MODEL.is_dir() and stamps.is_current("model", value):
        return
    shutil.rmtree(MODEL, ignore_errors=True)
    run_long(
        "making the tiny model",
        [interpreter(), "-s", MODEL_SCRIPT, MODEL],
        BUILD_LOGS / "model.log",
        env={"PYTHONPATH": str(ENGINE), "CUDA_VISIBLE_DEVICES": ""},
    )
    stamps.set_current("model", value)
