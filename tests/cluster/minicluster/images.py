"""The images that the cluster runs, made here: no registry is reached.

Each is a function that makes the image's archive unless its inputs are unchanged.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from . import engine, stamps
from .archive import PAUSE, REGISTRY, Content, Image, Layer, tree, write_image, write_layer
from .errors import ClusterError
from .paths import BUILD_LOGS, IMAGES, REPOSITORY, SHARE
from .python import install_into, interpreter, uv
from .shell import Argument, attempt, run, run_long, say

SUITE = "bookworm"
BASE_PACKAGES = ("ca-certificates", "libnuma1", "python3")
# Documentation, downloads, and what debootstrap copies from this machine.
BASE_SKIPS = frozenset(
    f"{above}/{name}" if above else name
    for above, names in {
        "": ("dev", "proc", "sys"),
        "etc": ("hostname", "resolv.conf"),
        "usr/share": ("doc", "info", "locale", "man"),
        "var": ("cache", "lib/apt/lists", "log"),
    }.items()
    for name in names
)
# Always there for the runtime to mount on, and for programs to write in.
BASE_FOLDERS = ("dev", "proc", "sys", "var/cache", "var/log")
DIST_PACKAGES = "usr/local/lib/python3.11/dist-packages"
OPERATOR_USER = "65532:65532"
OPERATOR_SOURCES = ("operator", "runtime", "crds", "pyproject.toml")


def layer_path(name: str) -> Path:
    return IMAGES / "layers" / f"{name}.tar"


def archive_path(name: str) -> Path:
    return IMAGES / f"{name}.tar"


def unchanged(name: str, value: str) -> bool:
    return archive_path(name).is_file() and stamps.is_current(f"image-{name}", value)


def finish(name: str, value: str, image: Image) -> None:
    write_image(archive_path(name), image)
    stamps.set_current(f"image-{name}", value)
    say(f"made {image.reference} ({archive_path(name).stat().st_size >> 20} MiB)")


def pause_image() -> None:
    """The process that holds a pod's namespaces, from Kubernetes' own source."""
    source = SHARE / "pause.c"
    if not source.exists():
        raise ClusterError(f"{source} is not there", hint="python3 tests/cluster/cluster.py build")
    value = stamps.fingerprint([source])
    if unchanged("pause", value):
        return
    IMAGES.mkdir(parents=True, exist_ok=True)
    program = IMAGES / "pause"
    run(["gcc", "-Os", "-static", "-DVERSION=1", "-o", program, source])
    layer = write_layer(layer_path("pause"), [Content("pause", program, mode=0o755)])
    program.unlink()
    finish("pause", value, Image(PAUSE, [layer], ["/pause"]))


def base_layer() -> Layer:
    """A small Debian with Python 3.11."""
    value = stamps.fingerprint([SUITE, *BASE_PACKAGES, *sorted(BASE_SKIPS)])
    path = layer_path("base")
    if path.is_file() and stamps.is_current("layer-base", value):
        return Layer(path)
    if os.geteuid() != 0:
        raise ClusterError("making the base image needs root", hint="run it with sudo")
    root = IMAGES / "base"
    remove_root(root)
    root.mkdir(parents=True)
    run_long(
        f"making the base image from Debian {SUITE}",
        ["debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}", SUITE, root],
        BUILD_LOGS / "debootstrap.log",
        env={"PYTHONHASHSEED": "0"},  # byte code of sets depends on it
        hint="Debian's mirror must be reachable once",
    )
    contents = [*tree(root, skip=BASE_SKIPS, keep_owner=True), *(Content(name, root / name) for name in BASE_FOLDERS)]
    layer = write_layer(path, contents)
    remove_root(root)
    stamps.set_current("layer-base", value)
    return layer


def remove_root(root: Path) -> None:
    """An interrupted debootstrap leaves its /proc mounted."""
    if not root.exists():
        return
    for mounted in ("proc", "sys"):
        attempt(["umount", "--lazy", root / mounted])
    shutil.rmtree(root)


def python_image() -> None:
    layer = base_layer()
    if not unchanged("python", layer.digest):
        finish("python", layer.digest, Image(f"{REGISTRY}/python:3.11", [layer], environment=python_environment()))


def engine_image() -> None:
    """The base, told to find the engine's wheels at /opt/sglang, where a volume holds them."""
    base = base_layer()
    value = stamps.fingerprint([base.digest, engine.MOUNT, engine.version()])
    if unchanged("sglang-cpu", value):
        return
    path_file = Content(f"{DIST_PACKAGES}/sglang.pth", f"{engine.MOUNT}\n")
    layer = write_layer(layer_path("sglang-cpu"), [path_file])
    # torch would compile kernels on first use, and there is no compiler in the image.
    variables = python_environment() | {"TORCHDYNAMO_DISABLE": "1"}
    reference = f"{REGISTRY}/sglang-cpu:{engine.version()}"
    finish("sglang-cpu", value, Image(reference, [base, layer], environment=variables))


def operator_image() -> None:
    """The base, a layer with what the operator needs, and a thin one with the project's wheel, which changes often."""
    base = base_layer()
    sources = [REPOSITORY / name for name in OPERATOR_SOURCES]
    value = stamps.fingerprint([base.digest, OPERATOR_USER, *sources])
    if unchanged("operator", value):
        return
    project = REPOSITORY / "pyproject.toml"
    needs = python_layer("operator-needs", stamps.fingerprint([project]), ["-r", project, "--extra", "operator"])
    dist = IMAGES / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run_long(
        "building the project's wheel",
        [uv(), "build", "--wheel", "--out-dir", dist, REPOSITORY],
        BUILD_LOGS / "operator-wheel.log",
        cwd=REPOSITORY,
    )
    own = python_layer("operator", value, ["--no-deps", next(dist.glob("*.whl"))])
    command = ["python3", "-m", "vlm_operator"]
    image = Image(f"{REGISTRY}/operator:dev", [base, needs, own], command, python_environment(), OPERATOR_USER)
    finish("operator", value, image)


def python_layer(name: str, value: str, packages: list[Argument]) -> Layer:
    """A layer with Python packages where Debian's Python looks for them."""
    path = layer_path(name)
    if path.is_file() and stamps.is_current(f"layer-{name}", value):
        return Layer(path)
    target = IMAGES / name
    shutil.rmtree(target, ignore_errors=True)
    log = BUILD_LOGS / f"{name}.log"
    run_long(f"installing packages for {name}", [*install_into(target), *packages], log, cwd=REPOSITORY)
    # By hash, not by time: byte code is the same in every build and valid whatever the image does to times.
    by_hash = ["-q", "--invalidation-mode=unchecked-hash"]
    run([interpreter(), "-m", "compileall", *by_hash, "-s", target, "-p", f"/{DIST_PACKAGES}", target])
    layer = write_layer(path, python_contents(target))
    shutil.rmtree(target)
    stamps.set_current(f"layer-{name}", value)
    return layer


def python_contents(target: Path) -> list[Content]:
    """Without scripts, whose first lines name this machine's Python, and without where the wheel lay."""
    return [
        content
        for content in tree(target, f"{DIST_PACKAGES}/", skip=frozenset(["bin", ".lock"]))
        if Path(content.name).name not in ("direct_url.json", "uv_cache.json")
    ]


def python_environment() -> dict[str, str]:
    return {"PYTHONUNBUFFERED": "1", "LANG": "C.UTF-8"}


MAKERS = {"pause": pause_image, "python": python_image, "sglang-cpu": engine_image, "operator": operator_image}


def make(names: Sequence[str] = ()) -> None:
    if unknown := [name for name in names if name not in MAKERS]:
        raise ClusterError(f"no such image: {', '.join(unknown)}", hint=f"choose from {', '.join(MAKERS)}")
    for name in names or MAKERS:
        MAKERS[name]()
    say(f"images ready in {IMAGES}: {', '.join(names or MAKERS)}")
