"""What the cluster needs of the machine, all told at once."""

import importlib.util
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import build
from .errors import ClusterError
from .paths import ENGINE, IMAGES, REPOSITORY, SOURCE
from .shell import attempt, environment, run, say

PACKAGES = SOURCE / "debian-packages.txt"
GIB = 1 << 30
# What each step adds to the disk, in GiB: Go's modules, cache and programs; images; wheels and uv's cache; a run.
BUILD_GIB, IMAGES_GIB, ENGINE_GIB, RUN_GIB = 8, 2, 25, 3


@dataclass(frozen=True)
class Package:
    name: str
    sign: str  # a program, a file, or `module:NAME`
    reason: str

    def is_there(self) -> bool:
        if self.sign.startswith("module:"):
            return importlib.util.find_spec(self.sign.removeprefix("module:")) is not None
        if self.sign.startswith("/"):
            return Path(self.sign).exists()
        return shutil.which(self.sign, path=environment()["PATH"]) is not None


def packages() -> list[Package]:
    lines = [line for line in PACKAGES.read_text().splitlines() if line and not line.startswith("#")]
    return [Package(*line.split(maxsplit=2)) for line in lines]


def missing_packages() -> list[Package]:
    return [package for package in packages() if not package.is_there()]


def install_packages() -> None:
    names = [package.name for package in missing_packages()]
    if not names:
        return
    if os.geteuid() != 0:
        raise ClusterError("installing packages needs root", hint=f"sudo apt-get install {' '.join(names)}")
    say(f"installing {' '.join(names)}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update"], env=quiet)
    run(["apt-get", "install", "--yes", "--no-install-recommends", *names], env=quiet)


def go_problem() -> str | None:
    """Go is asked inside the module: from 1.21 on it fetches the version that go.mod names by itself."""
    if not build.outdated(list(build.packages())):
        return None
    wanted = build.go_version()
    where = "https://go.dev/dl, then put its bin folder on PATH"
    if shutil.which("go") is None:
        return f"no Go on PATH; {wanted} or newer is needed: {where}"
    shown = attempt(["go", "env", "GOVERSION"], cwd=SOURCE)
    found = shown.stdout.strip()
    if shown.returncode != 0 or numbers(found) < numbers(wanted):
        return f"Go {wanted} or newer is needed, found {found or shown.stderr.strip()[-200:]}: {where}"
    return None


def numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def disk_problem() -> str | None:
    needed = RUN_GIB
    needed += BUILD_GIB if build.outdated(list(build.packages())) else 0
    needed += IMAGES_GIB if not IMAGES.is_dir() else 0
    needed += ENGINE_GIB if not ENGINE.is_dir() else 0
    free = shutil.disk_usage(REPOSITORY).free / GIB
    return f"{needed} GiB of free disk are needed, {free:.0f} are free in {REPOSITORY}" if free < needed else None


def problems() -> list[str]:
    found = []
    if os.geteuid() != 0:
        found.append("not root: namespaces, mounts and control groups need it; run with sudo")
    if lacking := missing_packages():
        found += [f"Debian package {package.name} is missing: {package.reason}" for package in lacking]
        found.append(f"install them: apt-get install {' '.join(package.name for package in lacking)}")
    return found + [problem for problem in (go_problem(), disk_problem()) if problem]


def check() -> None:
    if found := problems():
        raise ClusterError(
            "this machine cannot run the cluster yet:" + "".join(f"\n  - {problem}" for problem in found)
        )
    say("this machine has all that the cluster needs")


def require_for_start() -> None:
    """What `up` needs, without what only builds need."""
    if os.geteuid() != 0:
        raise ClusterError("starting the cluster needs root", hint="run it with sudo")
    if lacking := missing_packages():
        raise ClusterError(
            f"missing: {', '.join(package.name for package in lacking)}",
            hint=f"apt-get install {' '.join(package.name for package in lacking)}",
        )
    if outdated := build.outdated(list(build.packages())):
        raise ClusterError(f"not built: {', '.join(outdated)}", hint="python3 tests/cluster/cluster.py build")
