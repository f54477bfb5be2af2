"""An API server alone, for tests that need its rules and no nodes: ports of the loopback address, no root."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import control_plane, kube, pki
from .errors import ClusterError
from .paths import ASSETS_TOOLS, tool
from .ports import LOOPBACK, free_port
from .processes import Daemons
from .shell import Argument


@dataclass(frozen=True)
class ApiServer:
    url: str
    kubeconfig: Path  # an administrator, by client certificate


@contextmanager
def apiserver(folder: Path) -> Iterator[ApiServer]:
    """etcd and kube-apiserver while the block runs, with their state in `folder`.

    No controllers run: a namespace that is deleted stays in Terminating, owners collect nothing, and service accounts
    get no tokens (so pods are accepted without any).
    """
    for name in ASSETS_TOOLS:
        if not os.access(tool(name), os.X_OK):
            raise ClusterError(
                f"{tool(name)} is not there",
                hint=f"python3 tests/cluster/cluster.py build --only {' '.join(ASSETS_TOOLS)}",
            )
    folder = folder.resolve()
    certificates = [
        control_plane.ADMIN,
        pki.Certificate("kube-apiserver", "kube-apiserver", addresses=control_plane.SERVICE_NAMES),
    ]
    pki.issue(folder / "pki", certificates)
    client, peer, secure = free_port(), free_port(), free_port()
    server = ApiServer(f"https://{LOOPBACK}:{secure}", folder / "kubeconfig")
    pki.write_kubeconfig(server.kubeconfig, folder / "pki", control_plane.ADMIN.name, server.url)
    etcd_url = f"http://{LOOPBACK}:{client}"
    daemons = Daemons(folder)
    # A test run that is killed cannot clean up; its servers end with it all the same.
    bound_to_us: list[Argument] = ["setpriv", "--pdeathsig", "KILL"]
    etcd = control_plane.etcd(folder / "etcd", etcd_url, f"http://{LOOPBACK}:{peer}")
    flags = control_plane.apiserver(folder / "pki", etcd_url, address=LOOPBACK, bind=LOOPBACK, port=secure)
    # Nothing makes service accounts here, and a loopback address is none that the Service `kubernetes` may have.
    flags += ["--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"]
    try:
        daemons.start("etcd", [*bound_to_us, *etcd])
        daemons.start("kube-apiserver", [*bound_to_us, *flags])

        def ready() -> bool:
            return kube.succeeds("get", "--raw=/readyz", kubeconfig=server.kubeconfig)

        daemons.wait_for("the API server is ready", ready, daemon="kube-apiserver", seconds=60)
        yield server
    finally:
        daemons.stop(["kube-apiserver"], seconds=5)
        daemons.stop(["etcd"], seconds=5)
