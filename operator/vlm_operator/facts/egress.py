"""Which addresses are public, and which hosts a service's environment variables point to. No lookups.

It limits one risk: a request names an image by URL, and the engine fetches it from inside the cluster.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from unicodedata import normalize
from urllib.parse import urlsplit

# Ranges that IANA's special-purpose registry (RFC 6890 and later) does not list as globally reachable, and multicast:
# clusters, nodes and cloud metadata services. The last one is Azure's wire server.
_CLOSED_IPV4: Final = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4", "168.63.129.16/32",
)  # fmt: skip
# ::ffff:0:0/96 is left out: the API server rejects it, and such addresses leave the pod as IPv4.
_CLOSED_IPV6: Final = (
    "::/127", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)  # fmt: skip
# NAT64 (RFC 6052) embeds IPv4 addresses in this prefix, so the closed IPv4 ranges are closed here as well.
_TRANSLATED: Final = IPv6Network("::ffff:0:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")

# Metadata services, which serve a node's credentials. Link-local: AWS, GCP, Azure, Oracle, Amazon's ECS and others; then
# Alibaba, Azure's wire server, Oracle Cloud Classic.
METADATA_IPV4: Final = ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32")
# AWS, link-local, GCP, Oracle, Scaleway, Linode, Alibaba.
_METADATA_IPV6: Final = (
    "fd00:ec2::/32", "fe80::/10", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128",
    "fd00:a9fe:a9fe::1/128", "fd00:100::100:200/128",
)  # fmt: skip
_METADATA_NAMES: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)

_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "socks4": 1080, "socks5": 1080, "socks5h": 1080}
VARIABLES: Final = ("ALL_PROXY", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy")
# One to four numbers in hexadecimal, octal or decimal.
_IPV4_NUMBER: Final = r"(0x0*[0-9a-f]{1,8}|0+[0-7]{0,11}|[1-9][0-9]{0,9})"
_IPV4_NUMBERS: Final = re.compile(rf"{_IPV4_NUMBER}(\.{_IPV4_NUMBER}){{0,3}}")
_SERVICE: Final = re.compile(r"(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(\..+)?")


def metadata_ipv6() -> list[str]:
    """IPv6 ranges of metadata services, also behind NAT64."""
    return [*_METADATA_IPV6, *(_behind_nat64(block) for block in METADATA_IPV4)]


def closed_ipv4() -> list[str]:
    """IPv4 ranges from which no image may be fetched."""
    return sorted(_CLOSED_IPV4)


def closed_ipv6() -> list[str]:
    """IPv6 ranges from which no image may be fetched."""
    return sorted([*_CLOSED_IPV6, *(_behind_nat64(block) for block in _CLOSED_IPV4)])


@cache
def _behind_nat64(block: str) -> str:
    network = IPv4Network(block)
    first = int(_NAT64.network_address) + int(network.network_address)
    return str(IPv6Network((first, 96 + network.prefixlen)))


@dataclass(frozen=True)
class Destination:
    """A proxy or a mirror that an environment variable points to."""

    variable: str
    host: str
    port: int


def destinations(variables: Mapping[str, str]) -> list[Destination]:
    """The proxies and the hub mirror in the environment variables. Values that are not URLs are skipped."""
    found = []
    for name in VARIABLES:
        if (value := variables.get(name, "").strip()) and (host := _destination(name, value)) is not None:
            found.append(host)
    return found


def unreadable(variables: Mapping[str, str]) -> list[str]:
    """The proxy and mirror variables whose value does not name a host."""
    return [n for n in VARIABLES if variables.get(n, "").strip() and _destination(n, variables[n].strip()) is None]


def _destination(name: str, value: str) -> Destination | None:
    try:
        # Proxies are often written without a scheme.
        url = urlsplit(value if "://" in value else f"http://{value}")
        port = url.port or _DEFAULT_PORTS.get(url.scheme)
    except ValueError:
        return None
    return Destination(name, url.hostname, port) if url.hostname and port else None


def address_block(host: str) -> str | None:
    """An IP address as a CIDR block of one address; None for a host name."""
    address = _address(host)
    return None if address is None else f"{address}/{address.max_prefixlen}"


def is_metadata(host: str) -> bool:
    """Whether a host is a cloud's metadata service or link-local, in any notation."""
    if (address := _address(host)) is None:
        return host.lower().rstrip(".") in _METADATA_NAMES
    # 6to4, IPv4-compatible and IPv4-translated (RFC 7915) addresses hold an IPv4 address, too.
    inner = address.sixtofour if isinstance(address, IPv6Address) else None
    if isinstance(address, IPv6Address) and (1 < int(address) < 1 << 32 or address in _TRANSLATED):
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return any(_within(each, (*METADATA_IPV4, *metadata_ipv6())) for each in (address, inner) if each is not None)


def is_inside(host: str) -> bool:
    """Whether a host is an address that is not public, or a name that only the cluster's DNS knows."""
    if (address := _address(host)) is not None:
        return _within(address, (*closed_ipv4(), *closed_ipv6()))
    name = f".{host.lower().rstrip('.')}."
    return name.count(".") == 2 or ".svc." in name or name.endswith(".cluster.local.")


def _within(address: IPv4Address | IPv6Address, blocks: Iterable[str]) -> bool:
    return any(address in ip_network(block) for block in blocks)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """An address in any notation that the C library takes: 10.0.0.1 is also 167772161, 0x0a000001, 012.0.0.1 and ::ffff:a00:1."""
    # HTTP libraries map full-width digits and dots before they look at a host.
    host = normalize("NFKC", host).replace("\u3002", ".").strip("[]").partition("%")[0].rstrip(".")
    try:
        address = ip_address(host)
    except ValueError:
        numbers = _IPV4_NUMBERS.fullmatch(host.lower()) and [_number(part) for part in host.lower().split(".")]
        if not numbers or max(numbers[:-1], default=0) > 255 or numbers[-1] >= 256 ** (5 - len(numbers)):
            return None
        # The last number fills what the others leave: 10.1 is 10.0.0.1.
        address = IPv4Address(sum(n << (24 - 8 * i) for i, n in enumerate(numbers[:-1])) + numbers[-1])
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text, 16)
    return int(text, 8 if text.startswith("0") else 10)


def service_namespace(host: str) -> str | None:
    """The namespace of a Service's full name (``NAME.NAMESPACE.svc`` and longer); None for any other name."""
    match = _SERVICE.fullmatch(host.lower().rstrip("."))
    return match["namespace"] if match else None
