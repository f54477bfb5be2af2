"""The addresses on which the engine listens and is reached."""

from __future__ import annotations

import socket

import pytest
from unit.runtime.harness import make_plan

from vlm_runtime.sglang.command import EngineCommand, engine_command, loopback_of
from vlm_runtime.supervise.pod import is_ipv6_only, own_address


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("", "127.0.0.1"),  # SGLang's own default
        ("::", "::1"),
        ("[::]", "::1"),
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8::7", "2001:db8::7"),
    ],
)
def test_an_engine_is_reached_where_it_listens(host: str, address: str) -> None:
    assert loopback_of(host) == address


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "alone"),
    [
        (None, "2001:db8::7", True),
        (None, "fd00::7", True),
        ("169.254.172.3", "2001:db8::7", True),  # a pod of Amazon's EKS in a cluster of IPv6
        ("10.0.0.7", "2001:db8::7", False),
        ("10.0.0.7", None, False),
        (None, "fe80::7%eth0", False),
        (None, None, False),
    ],
)
def test_a_pod_is_ipv6_only_if_it_is_not_reachable_by_ipv4(ipv4: str | None, ipv6: str | None, alone: bool) -> None:
    assert is_ipv6_only({socket.AF_INET: ipv4, socket.AF_INET6: ipv6}.get) is alone


def test_this_machine_can_listen_on_its_own_address() -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        if (address := own_address(family)) is not None:
            socket.create_server((address, 0), family=family).close()


def started(*args: str, ipv6_only: bool) -> EngineCommand:
    return engine_command(make_plan(engine={"args": list(args)}), {}, ["python3"], ipv6_only=ipv6_only)


def test_without_ipv4_the_engine_listens_on_all_ipv6_addresses() -> None:
    six = started("--host", "0.0.0.0", ipv6_only=True)
    assert (six.argv[-2:], six.address) == (("--host", "::"), "::1")
    four = started("--host", "0.0.0.0", ipv6_only=False)
    assert (four.argv[-2:], four.address) == (("--host", "0.0.0.0"), "127.0.0.1")


def test_the_users_address_is_kept() -> None:
    chosen = started("--host", "2001:db8::7", ipv6_only=True)
    assert (chosen.argv[-1], chosen.address) == ("2001:db8::7", "2001:db8::7")
