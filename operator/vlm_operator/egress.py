"""Which addresses are public, and what a service's own variables say about its way out. Pure arithmetic on addresses.

Everything here is about one danger: a request names an image by URL, and the engine fetches it from inside the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final
from urllib.parse import urlsplit

# What IANA's special-purpose registry (RFC 6890 and later) does not call globally reachable, and multicast. Clusters,
# nodes and clouds' metadata services live there, but for the last one, which is Azure's wire server.
_CLOSED_IPV4: Final = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4", "168.63.129.16/32",
)  # fmt: skip
# Without ::ffff:0:0/96: the API server refuses it, and what is written so leaves the pod as IPv4.
_CLOSED_IPV6: Final = (
    "::/127", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)  # fmt: skip
# NAT64 (RFC 6052) writes an IPv4 address behind this prefix, so what is closed there is closed here as well.
_NAT64: Final = IPv6Network("64:ff9b::/96")

# Where clouds tell a pod its node's credentials: AWS, GCP, Azure, Oracle and others; AWS over IPv6; Alibaba; Azure.
METADATA_IPV4: Final = ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32")
METADATA_IPV6: Final = ("fd00:ec2::/32", "fe80::/10")

_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "socks4": 1080, "socks5": 1080, "socks5h": 1080}
VARIABLES: Final = ("ALL_PROXY", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy")
_SERVICE: Final = re.compile(r"(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(\..+)?")


def closed_ipv4() -> list[str]:
    """IPv4 ranges that no image is fetched from."""
    return sorted(_CLOSED_IPV4)


def closed_ipv6() -> list[str]:
    """IPv6 ranges that no image is fetched from."""
    return sorted([*_CLOSED_IPV6, *(_behind_nat64(block) for block in _CLOSED_IPV4)])


@cache
def _behind_nat64(block: str) -> str:
    network = IPv4Network(block)
    first = int(_NAT64.network_address) + int(network.network_address)
    return str(IPv6Network((first, 96 + network.prefixlen)))


@dataclass(frozen=True)
class WayOut:
    """A host that the pods are told to go through or to."""

    variable: str
    host: str
    port: int


def ways_out(variables: Mapping[str, str]) -> list[WayOut]:
    """Proxies and the hub's mirror among environment variables, by name. A value that is no URL is left out."""
    found = []
    for name in VARIABLES:
        if (value := variables.get(name, "").strip()) and (way := _way(name, value)) is not None:
            found.append(way)
    return found


def unreadable(variables: Mapping[str, str]) -> list[str]:
    """Names of variables among them whose value names no host."""
    return [n for n in VARIABLES if variables.get(n, "").strip() and _way(n, variables[n].strip()) is None]


def _way(name: str, value: str) -> WayOut | None:
    try:
        # Proxies are often written without a scheme.
        url = urlsplit(value if "://" in value else f"http://{value}")
        port = url.port or _DEFAULT_PORTS.get(url.scheme)
    except ValueError:
        return None
    return WayOut(name, url.hostname, port) if url.hostname and port else None


def address_block(host: str) -> str | None:
    """An IP address as a block of one; None for a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return f"{address}/{address.max_prefixlen}"


def service_namespace(host: str) -> str | None:
    """The namespace of a Service's full name (``NAME.NAMESPACE.svc`` and longer); None for every other name."""
    found = _SERVICE.fullmatch(host.lower().rstrip("."))
    return found["namespace"] if found else None
