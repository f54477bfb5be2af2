"""Bringing the whole cluster up and down."""

import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import cgroups, control_plane, kwok, lws, network, node, pki, volumes
from .check import require_for_start
from .errors import ClusterError
from .kube import kubectl, succeeds
from .paths import CONTAINERD, IMAGES, KUBECONFIG, PKI, RUN, STATE
from .processes import Daemons, kill_until_gone, send
from .shell import say

ETCD_CLIENT, ETCD_PEER = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
SERVER = f"https://{network.NODE_IP}:{control_plane.API_PORT}"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
CORE = (*CONTROL_PLANE, node.HOLDER, "containerd", "kubelet", "kube-proxy", "coredns")
ADDONS = {"kwok": kwok, "lws-manager": lws}
IMPORTED = CONTAINERD / "imported.json"


@contextmanager
def exclusive() -> Iterator[None]:
    """One start or stop at a time. The lock goes with the process, whatever ends it."""
    STATE.mkdir(exist_ok=True)
    with (STATE / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise ClusterError(
                f"process {lock.read().strip()} is starting or stopping the cluster", hint="wait for it, or end it"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


class Steps:
    """Prints what is done, with the seconds since the start."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def done(self, what: str) -> None:
        say(f"{time.monotonic() - self.started:6.1f} s  {what}")


def is_healthy(daemons: Daemons) -> bool:
    return all(daemons.pid(name) for name in CORE) and node_is_ready()


def node_is_ready() -> bool:
    return succeeds("wait", "--for=condition=Ready", "--timeout=1s", f"node/{node.NAME}")


def up(*, with_kwok: bool = True, with_lws: bool = True, cold: bool = False) -> None:
    """Starts the cluster, or what is missing of it. A broken one is stopped first and started from nothing."""
    require_for_start()
    addons = [name for name, wanted in (("kwok", with_kwok), ("lws-manager", with_lws)) if wanted]
    with exclusive():
        steps = Steps()
        daemons = Daemons(RUN)
        if not cold and is_healthy(daemons):
            complete(daemons, addons, steps)
            say(f"the cluster is up already: KUBECONFIG={KUBECONFIG}")
            return
        network.refuse_foreign(RUN)
        stop_everything(daemons)
        shutil.rmtree(RUN, ignore_errors=True)
        if cold:
            shutil.rmtree(PKI, ignore_errors=True)
            shutil.rmtree(CONTAINERD, ignore_errors=True)
        steps.done("nothing left of an earlier one")
        start_core(daemons, steps)
        complete(daemons, addons, steps)
        volumes.provide("default")
        steps.done("claims for engine and models in namespace default")
        say(f"the cluster is up: export KUBECONFIG={KUBECONFIG}")


def start_core(daemons: Daemons, steps: Steps) -> None:
    modules = (control_plane, node, kwok, lws)
    certificates = [certificate for module in modules for certificate in module.certificates()]
    pki.issue(PKI, certificates)
    for certificate in certificates:
        pki.write_kubeconfig(own_kubeconfig(certificate.name), PKI, certificate.name, SERVER)
    pki.write_kubeconfig(KUBECONFIG, PKI, control_plane.ADMIN.name, SERVER)
    network.create(RUN)
    cgroups.create()
    node.hold_mounts(daemons)
    steps.done("certificates, network, control group, mounts")

    daemons.start("etcd", network.inside(control_plane.etcd(RUN / "etcd", ETCD_CLIENT, ETCD_PEER)))
    daemons.start("kube-apiserver", network.inside(control_plane.cluster_apiserver(PKI, ETCD_CLIENT)))
    node.start_containerd(daemons)
    import_images(daemons)
    steps.done("containerd and its images")

    daemons.wait_for(
        "the API server is ready", lambda: succeeds("get", "--raw=/readyz"), daemon="kube-apiserver", seconds=60
    )
    steps.done("API server")
    # Not earlier: before the first roles exist these two are refused, and end at once.
    manager = own_kubeconfig("kube-controller-manager")
    daemons.start("kube-controller-manager", network.inside(control_plane.controller_manager(PKI, manager)))
    daemons.start("kube-scheduler", network.inside(control_plane.scheduler(own_kubeconfig("kube-scheduler"))))
    node.start_kubelet(daemons, PKI, own_kubeconfig("kubelet"))
    node.start_proxy(daemons, own_kubeconfig("kube-proxy"))
    node.start_dns(daemons, own_kubeconfig("coredns"))
    daemons.wait_for("the node is ready", node_is_ready, daemon="kubelet", seconds=90)
    # Pods are refused without it, so it belongs to "up".
    daemons.wait_for(
        "the default service account",
        lambda: succeeds("get", "serviceaccount", "default"),
        daemon="kube-controller-manager",
    )
    steps.done("node ready")


def own_kubeconfig(user: str) -> Path:
    return RUN / "kubeconfigs" / user


def complete(daemons: Daemons, addons: list[str], steps: Steps) -> None:
    """What may be missing in a healthy cluster: images that changed, and controllers that were left out or ended."""
    for name in import_images(daemons):
        steps.done(f"image {name}")
    for name in addons:
        if daemons.pid(name) is None:
            ADDONS[name].start(daemons, own_kubeconfig(name))
            steps.done(name)


def import_images(daemons: Daemons) -> list[str]:
    """Imports the archives that are new or changed since their last import; returns their names."""
    known: dict[str, list[int]] = json.loads(IMPORTED.read_text()) if IMPORTED.exists() else {}
    imported = []
    for archive in sorted(IMAGES.glob("*.tar")):
        state = archive.stat()
        version = [state.st_size, state.st_mtime_ns]
        if known.get(archive.name) != version:
            node.import_image(daemons, archive)
            known[archive.name] = version
            IMPORTED.write_text(json.dumps(known))
            imported.append(archive.stem)
    return imported


def load(archive: Path) -> None:
    if not archive.is_file():
        raise ClusterError(f"{archive} is not a file")
    daemons = Daemons(RUN)
    if daemons.pid("containerd") is None:
        raise ClusterError("the cluster is not up", hint="python3 tests/cluster/cluster.py up")
    node.import_image(daemons, archive.resolve())
    say(f"loaded {archive}")


def down() -> None:
    if os.geteuid() != 0:
        raise ClusterError("stopping the cluster needs root", hint="run it with sudo")
    with exclusive():
        network.refuse_foreign(RUN)
        stop_everything(Daemons(RUN))
        KUBECONFIG.unlink(missing_ok=True)
        say(f"the cluster is down; logs stay in {RUN / 'log'} until the next start")


def stop_everything(daemons: Daemons) -> None:
    """Stops and removes whatever there is, down to nothing; pid files are not needed, only kinder.

    Order matters: controllers before the API server, that before etcd, and pods before the containerd that would
    restart nothing but complain.
    """
    last = ("kube-apiserver", "etcd", "containerd", node.HOLDER)
    daemons.stop([name for name in daemons.names() if name not in last], seconds=5)
    daemons.stop(["kube-apiserver"], seconds=5)
    daemons.stop(["etcd"], seconds=5)
    for pid in cgroups.processes():
        send(pid, signal.SIGKILL)
    kill_until_gone(cgroups.processes, "pods")
    daemons.stop(["containerd"], seconds=3)
    kill_until_gone(network.processes, "programs in the cluster's network")
    cgroups.remove()
    network.remove()


def status() -> None:
    """One line for each part, then the nodes as the API server sees them."""
    daemons = Daemons(RUN)
    for name in (*CORE, *ADDONS):
        pid = daemons.pid(name)
        say(f"{name:24} {f'pid {pid}, {resident_mib(pid)} MiB' if pid else 'not running'}")
    if not KUBECONFIG.exists() or not succeeds("get", "--raw=/readyz"):
        raise ClusterError("the API server does not answer", hint="python3 tests/cluster/cluster.py up")
    say(f"{'kubeconfig':24} {KUBECONFIG}")
    for line in kubectl("get", "nodes", "--no-headers").splitlines():
        say(f"node {line}")


def resident_mib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20
