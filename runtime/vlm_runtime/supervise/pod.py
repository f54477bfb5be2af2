"""What the kernel says about this pod: its addresses, and how often it killed a process for memory."""

import socket
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

CGROUP: Final = Path("/sys/fs/cgroup")

# Addresses for documentation (RFC 5737, RFC 3849). Nothing is sent there.
_REMOTE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def own_address(family: socket.AddressFamily) -> str | None:
    """The source address of outgoing connections in that family; None without a route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_REMOTE[family], 9))  # asks the kernel for a route and sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def is_ipv6_only(address_of: Callable[[socket.AddressFamily], str | None] = own_address) -> bool:
    """Whether other pods can reach this pod by IPv6 alone; False if it has no address at all."""
    return not _is_reachable(address_of(socket.AF_INET)) and _is_reachable(address_of(socket.AF_INET6))


def _is_reachable(address: str | None) -> bool:
    # Amazon's IPv6 clusters also give pods a link-local IPv4 address, for egress only.
    return address is not None and not ip_address(address.partition("%")[0]).is_link_local


def oom_kills(root: Path = CGROUP, self_cgroup: Path = Path("/proc/self/cgroup")) -> int:
    """The container's count of OOM kills (cgroup v2: memory.events, v1: memory.oom_control); 0 if unreadable."""
    return next((count for path in _counters(root, self_cgroup) if (count := _read_counter(path)) is not None), 0)


def _counters(root: Path, self_cgroup: Path) -> list[Path]:
    """Where the counter may be: at the root if the container sees only its own cgroup, else below it."""
    own = _own_cgroups(self_cgroup)
    return [
        root / own.get("", "") / "memory.events",
        root / "memory" / own.get("memory", "") / "memory.oom_control",
        root / "memory.events",
        root / "memory" / "memory.oom_control",
    ]


def _own_cgroups(self_cgroup: Path) -> dict[str, str]:
    """Controller -> relative path of this process' cgroup; ``""`` is cgroup v2."""
    try:
        lines = self_cgroup.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    groups: dict[str, str] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    return groups


def _read_counter(path: Path) -> int | None:
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        return None
    return None
