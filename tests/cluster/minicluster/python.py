"""The Python of the images, and uv, which installs packages for it."""

import os
import shutil
import sys
from pathlib import Path

from .errors import ClusterError
from .paths import TOOLS
from .shell import Argument, attempt, run, say

VERSION = "3.11"
UV = "uv==0.13.9"


def interpreter() -> Path:
    """A Python 3.11 of this machine; Debian's own first, since the images hold the same."""
    for candidate in (f"/usr/bin/python{VERSION}", shutil.which(f"python{VERSION}"), sys.executable):
        if candidate is None or not os.access(candidate, os.X_OK):
            continue
        shown = attempt([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        if shown.stdout.strip() == VERSION:
            return Path(candidate)
    raise ClusterError(f"no python{VERSION} on this machine", hint="apt-get install python3.11")


def install_into(folder: Path) -> list[Argument]:
    """The beginning of a command that installs packages for the images' Python into a plain folder."""
    return [uv(), "pip", "install", "--python-version", VERSION, "--target", folder]


def uv() -> Path:
    """The pinned uv, in a virtual environment of its own."""
    folder = TOOLS / UV
    program = folder / "bin" / "uv"
    if not program.exists():
        say(f"installing {UV}")
        hint = "apt-get install python3-venv; the package index must be reachable once"
        run([sys.executable, "-m", "venv", "--clear", folder], hint=hint)
        run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", UV], hint=hint)
    return program
