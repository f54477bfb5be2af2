"""Copies the runtime beside an unchanged engine: ``python3 -m vlm_runtime.install DEST``.

Runs as an init container of the operator's image and writes into a volume that the engine's container mounts. Copies the
distribution's metadata too, because SGLang finds plugins by their entry points.
"""

import shutil
import sys
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "vlm-operator"
PACKAGES = ("vlm_api", "vlm_runtime")
METADATA = ("METADATA", "entry_points.txt")

START = '''\
"""Starts the runtime with the engine's own Python. Written by vlm_runtime.install."""

import os
import signal
import sys

# The kernel ignores SIGTERM for PID 1 without a handler: until the runtime has its own, just end.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))

from vlm_runtime.__main__ import main

sys.exit(main())
'''


def install(dest: Path) -> None:
    """Fills ``dest`` with ``lib/`` (packages and metadata) and ``start.py``; replaces those of an earlier run.

    Raises OSError if ``dest`` cannot be written.
    """
    lib = dest / "lib"
    if lib.exists():
        shutil.rmtree(lib)
    for package in PACKAGES:
        source = _package_folder(package)
        for path in sorted(source.rglob("*.py")):
            _copy(path, lib / package / path.relative_to(source))
    meta = distribution(DISTRIBUTION)
    for path in _metadata_files(meta):
        _copy(path, lib / path.parent.name / path.name)
    for folder in (lib, *(path for path in lib.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    start = dest / "start.py"
    start.write_text(START, encoding="utf-8")
    start.chmod(0o644)


def _package_folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"package {package} is not installed beside the installer")
    return Path(spec.origin).parent


def _metadata_files(meta: Distribution) -> list[Path]:
    # Without RECORD and direct_url.json: they would list files that do not exist there.
    return [
        Path(str(meta.locate_file(file)))
        for file in meta.files or ()
        if file.parent.suffix == ".dist-info" and file.name in METADATA
    ]


def _copy(source: Path, target: Path) -> None:
    """Copies the content, readable for any user that the engine runs as."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o644)


def main(argv: list[str] | None = None) -> int:
    """The command: one argument, the folder to fill. Exit code 2 with one sentence if that fails."""
    args = sys.argv[1:] if argv is None else argv
    if len(args) != 1:
        print("usage: python3 -m vlm_runtime.install DEST", file=sys.stderr)
        return 2
    try:
        install(Path(args[0]))
    except OSError as error:
        print(f"cannot install the runtime into {args[0]}: {error}; mount a writable volume there", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
