"""The cluster's network namespace: its ports, bridges and firewall rules stay apart from the machine's.

A pair of virtual links joins it to the machine, which gets routes to the pods and the services.
"""

import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import ClusterError
from .processes import Daemons
from .shell import Argument, attempt, run

NAMESPACE = "vlm-cluster"
HANDLE = Path("/run/netns") / NAMESPACE
HOST_LINK, NODE_LINK = "vlmc-host", "vlmc-node"
HOST_IP, NODE_IP = "10.99.0.1", "10.99.0.2"
LINK_NETWORK = "10.99.0.0/30"
PODS = "10.245.0.0/24"
SERVICES = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_SERVICE_IP = "10.96.0.10"
SIMULATED_PODS = "10.246.0.1/16"  # addresses that KWOK writes into pods; nothing answers there


def inside(argv: Sequence[Argument]) -> list[Argument]:
    """The command, run in the cluster's network. nsenter becomes the program, so the pid stays."""
    return ["nsenter", f"--net={HANDLE}", *argv]


def owner() -> Path | None:
    """The state folder of the cluster that holds the link now: the link carries it as its alias."""
    shown = attempt(["ip", "-json", "link", "show", HOST_LINK])
    links = json.loads(shown.stdout or "[]") if shown.returncode == 0 else []
    return Path(links[0]["ifalias"]) if links and links[0].get("ifalias") else None


def refuse_foreign(run_folder: Path) -> None:
    """Another checkout's cluster has the same addresses; leave it alone while it runs."""
    holder = owner()
    if holder is None or holder == run_folder:
        return
    daemons = Daemons(holder)
    if any(daemons.pid(name) for name in daemons.names()):
        raise ClusterError(
            f"a cluster of another checkout runs on this machine: {holder.parent.parent}",
            hint=f"python3 {holder.parent.parent}/tests/cluster/cluster.py down",
        )


def refuse_overlap() -> None:
    """A route of the machine into one of our networks would be hidden, or hide ours."""
    ours = [ipaddress.ip_network(network) for network in (LINK_NETWORK, PODS, SERVICES)]
    routes: list[dict[str, Any]] = json.loads(run(["ip", "-json", "-4", "route", "show"]) or "[]")
    for route in routes:
        if route["dst"] == "default" or route.get("dev") == HOST_LINK:
            continue
        network = ipaddress.ip_network(route["dst"], strict=False)
        for mine in ours:
            if network.overlaps(mine):
                where = f"{route['dst']} ({route.get('dev')})"
                raise ClusterError(
                    f"the cluster's network {mine} overlaps with this machine's route to {where}",
                    hint="end what made the route, or use another machine",
                )


def create(run_folder: Path) -> None:
    refuse_overlap()
    run(["ip", "netns", "add", NAMESPACE])
    run(["ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", NODE_LINK, "netns", NAMESPACE])
    run(["ip", "link", "set", HOST_LINK, "alias", str(run_folder), "up"])
    run(["ip", "address", "add", f"{HOST_IP}/30", "dev", HOST_LINK])
    for network in (PODS, SERVICES):
        run(["ip", "route", "replace", network, "via", NODE_IP, "dev", HOST_LINK])
    # Bridged packets must pass iptables, or a pod's answer to a pod on the same node skips the way back through the
    # service's address. The module may be built in, or be loaded already where modprobe is not there.
    attempt(["sh", "-c", "modprobe br_netfilter"])
    inner = f"""
        ip link set lo up
        ip link set {NODE_LINK} up
        ip address add {NODE_IP}/30 dev {NODE_LINK}
        ip route add default via {HOST_IP}
        echo 1 >/proc/sys/net/ipv4/ip_forward
        echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
    """
    run(inside(["sh", "-ec", inner]), hint="load the kernel module br_netfilter")


def remove() -> None:
    """Removes link, routes and namespace; what runs in the namespace must have been stopped."""
    attempt(["ip", "link", "delete", HOST_LINK])
    if HANDLE.exists():
        run(["ip", "netns", "delete", NAMESPACE])


def processes() -> set[int]:
    """Everything that runs in the namespace, whoever started it; pods have namespaces of their own."""
    try:
        wanted = HANDLE.stat()
    except OSError:
        return set()
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            network = (process / "ns/net").stat()
        except OSError:
            continue
        if (network.st_dev, network.st_ino) == (wanted.st_dev, wanted.st_ino):
            found.add(int(process.name))
    return found
