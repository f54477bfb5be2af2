"""The cluster's programs, built from the `tool` lines of two go.mod files with the Go of PATH.

Kubernetes, etcd, containerd, the network plugins, KWOK, LeaderWorkerSet and prometheus-adapter all come as Go modules, so
go.sum pins every byte of the cluster and no container registry and no download page is needed.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from . import stamps
from .errors import ClusterError
from .paths import ASSETS_TOOLS, ASSETS_VARIABLE, BIN, BUILD_LOGS, CNI, SHARE, SOURCE, STATE, tool
from .shell import run, run_long, say

GO_MOD = SOURCE / "go.mod"
# A module of its own: it needs an older Kubernetes than the other programs. Only the suites use it.
ADAPTER = SOURCE / "adapter"
MODULES = (SOURCE, ADAPTER)
# `go build` names a program after its folder
NAMES = {"server": "etcd", "cmd": "lws-manager", "adapter": "prometheus-adapter"}
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")


def packages() -> dict[str, str]:
    """Program name -> Go package, of both modules."""
    return {name: package for module in MODULES for name, package in tools(module).items()}


def tools(module: Path) -> dict[str, str]:
    """The same of one module, from the tool lines of its go.mod. Go writes a block of one line without brackets."""
    found = re.search(r"^tool (?:\(\n(.*?)^\)|(\S+)$)", (module / "go.mod").read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise ClusterError(f"no tool lines in {module / 'go.mod'}")
    result = {}
    for package in (found.group(1) or found.group(2)).split():
        folder = folder_of(package)
        result[NAMES.get(folder, folder)] = package
    return result


def folder_of(package: str) -> str:
    return re.sub(r"/v\d+$", "", package).rsplit("/", 1)[1]


def module_version(module: str) -> str:
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", GO_MOD.read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{GO_MOD} does not require {module}")
    return found.group(1)


def go_version() -> str:
    """The Go that the modules ask for."""
    found = re.search(r"^go (\S+)", GO_MOD.read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"no go line in {GO_MOD}")
    return found.group(1)


def target(name: str) -> Path:
    return CNI / name if name in CNI_PLUGINS else BIN / name


def linker_flags(module: Path = SOURCE) -> str:
    """Without a version, every Kubernetes program calls itself v0.0.0."""
    if module == ADAPTER:
        return "-s -w"
    version = module_version("k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    variable = "k8s.io/component-base/version.git"
    return f"-s -w -X {variable}Version={version} -X {variable}Major={major} -X {variable}Minor={minor}"


def sources_fingerprint(module: Path) -> str:
    own = [SOURCE / "coredns"] if module == SOURCE else []
    return stamps.fingerprint([module / "go.mod", module / "go.sum", *own, linker_flags(module)])


def outdated(names: Sequence[str]) -> list[str]:
    """Those of the programs that are missing or were built from other sources."""
    wanted = {name: sources_fingerprint(module) for module in MODULES for name in tools(module)}
    return [
        name
        for name in names
        if tool(name).parent == BIN and not (target(name).is_file() and stamps.is_current(f"go-{name}", wanted[name]))
    ]


def build(only: Sequence[str] = (), *, for_tests: bool = False) -> None:
    """Builds what is outdated: all programs that a running cluster needs, with ``for_tests`` those of the suites as well.

    About twelve minutes with empty caches on two cores, five more for the suites, no time when nothing changed.
    """
    known = packages()
    if unknown := [name for name in only if name not in known]:
        raise ClusterError(f"no such program: {', '.join(unknown)}", hint=f"choose from {', '.join(sorted(known))}")
    STATE.mkdir(exist_ok=True)
    with (STATE / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = list(only) or list(known if for_tests else tools(SOURCE))
        todo = outdated(wanted)
        for module in MODULES:
            if programs := {name: package for name, package in tools(module).items() if name in todo}:
                compile_programs(module, programs)
        say(f"{len(wanted)} programs ready in {BIN}" + assets_note(wanted))


def assets_note(names: Sequence[str]) -> str:
    used = [name for name in names if name in ASSETS_TOOLS and tool(name).parent != BIN]
    return f" ({', '.join(used)} from {os.environ[ASSETS_VARIABLE]})" if used else ""


def compile_programs(module: Path, programs: dict[str, str]) -> None:
    BIN.mkdir(parents=True, exist_ok=True)
    CNI.mkdir(exist_ok=True)
    log = BUILD_LOGS / "go-build.log"

    def progress() -> str:
        return f"{sum(1 for line in log.read_text(errors='replace').splitlines() if '/' in line)} packages"

    run_long(
        f"building {len(programs)} Go program{'s' if len(programs) > 1 else ''}",
        ["go", "build", "-v", "-trimpath", "-ldflags", linker_flags(module), "-o", f"{BIN}/", *programs.values()],
        log,
        cwd=module,
        env={"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"},
        progress=progress,
        hint="`python3 tests/cluster/cluster.py check` says whether Go is new enough; modules need the network once",
    )
    built_from = sources_fingerprint(module)
    for name, package in programs.items():
        made = BIN / folder_of(package)
        if made != target(name):
            made.replace(target(name))
        copy_module_files(name)
        stamps.set_current(f"go-{name}", built_from)


def copy_module_files(name: str) -> None:
    """The few files of a module that go with its program, so that a start needs neither Go nor its cache."""
    SHARE.mkdir(exist_ok=True)
    if name == "kubelet":
        shutil.copyfile(module_folder("k8s.io/kubernetes") / "build/pause/linux/pause.c", SHARE / "pause.c")
    elif name == "kwok":
        stages = module_folder("sigs.k8s.io/kwok") / "kustomize/stage"
        files = ["node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease"]
        files += ["pod/fast/pod-ready", "pod/fast/pod-complete", "pod/fast/pod-delete"]
        (SHARE / "kwok-stages.yaml").write_text("\n---\n".join((stages / f"{file}.yaml").read_text() for file in files))
    elif name == "lws-manager":
        config = module_folder("sigs.k8s.io/lws") / "config"
        crds = sorted((config / "crd/bases").glob("*.yaml"))
        (SHARE / "lws-crds.yaml").write_text("\n---\n".join(crd.read_text() for crd in crds))
        shutil.copyfile(config / "webhook/manifests.yaml", SHARE / "lws-webhooks.yaml")


def module_folder(module: str) -> Path:
    return Path(run(["go", "list", "-m", "-f", "{{.Dir}}", module], cwd=SOURCE).strip())
