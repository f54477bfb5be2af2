"""The pod's addresses: on which one its engine listens, and where it is asked."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

ANY_IPV4: Final = "0.0.0.0"
ANY_IPV6: Final = "::"
LOOPBACK_IPV4: Final = "127.0.0.1"
LOOPBACK_IPV6: Final = "::1"

# Addresses for documentation (RFC 5737, RFC 3849): nobody has them, and nothing is sent there.
_ELSEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}


def own_address(family: socket.AddressFamily) -> str | None:
    """The address by which this pod goes elsewhere; None where it has no way out in that family."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((_ELSEWHERE[family], 9))  # asks the kernel for a route and sends nothing
            return str(asking.getsockname()[0])
    except OSError:
        return None


def is_ipv6_only(address_of: Callable[[socket.AddressFamily], str | None] = own_address) -> bool:
    """Whether others reach this pod by IPv6 alone. Where it has no address at all, nothing is known, and it is False."""
    return not _is_reachable(address_of(socket.AF_INET)) and _is_reachable(address_of(socket.AF_INET6))


def asked_at(host: str) -> str:
    """Where an engine answers that listens on this host. Its ``::`` means IPv6 alone, as Uvicorn binds it."""
    host = host.removeprefix("[").removesuffix("]")
    return {ANY_IPV4: LOOPBACK_IPV4, "": LOOPBACK_IPV4, ANY_IPV6: LOOPBACK_IPV6}.get(host, host)


def _is_reachable(address: str | None) -> bool:
    # Amazon's IPv6 clusters give pods a link-local IPv4 address as well, which is for their way out.
    return address is not None and not ip_address(address.partition("%")[0]).is_link_local
