"""What the operator's installer decided about networks, read from the command line."""

from __future__ import annotations

import json
from ipaddress import ip_network
from typing import Any, Final

from vlm_operator.errors import InvalidInput
from vlm_operator.render import Site

_FORM: Final = "write a JSON list of NetworkPolicyEgressRules, maps with `to` and `ports`"


def site(network_policies: bool, extra_egress: str) -> Site:
    """``extra_egress``: a JSON list of networking.k8s.io/v1 NetworkPolicyEgressRules, or empty.

    Raises InvalidInput where it is none, where a rule is empty, which would open everything, and where an address has no
    prefix length. What else stands inside a rule is the API server's to check.
    """
    if not extra_egress.strip():
        return Site(network_policies)
    try:
        rules: Any = json.loads(extra_egress)
    except ValueError as error:
        raise InvalidInput("--extra-egress", f"is no JSON ({error}): {_FORM}") from error
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise InvalidInput("--extra-egress", f"is no list of maps: {_FORM}")
    for number, rule in enumerate(rules):
        if not any(rule.get(field) for field in ("to", "ports")):
            raise InvalidInput(
                f"--extra-egress[{number}]",
                "is empty and would open every address: give it to or ports, or switch NetworkPolicies off",
            )
        if unknown := sorted(rule.keys() - {"to", "ports"}):
            raise InvalidInput(f"--extra-egress[{number}].{unknown[0]}", f"unknown field: {_FORM}")
        ports = rule.get("ports") or []
        if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
            raise InvalidInput(
                f"--extra-egress[{number}].ports", "is no list of maps: write [{protocol: TCP, port: 443}]"
            )
        peers = rule.get("to") or []
        if not isinstance(peers, list):
            raise InvalidInput(f"--extra-egress[{number}].to", f"is no list: {_FORM}")
        for place, peer in enumerate(peers):
            _check_peer(f"--extra-egress[{number}].to[{place}]", peer)
    return Site(network_policies, tuple(rules))


def _check_peer(field: str, peer: Any) -> None:
    if not isinstance(peer, dict):
        raise InvalidInput(field, f"is no map: {_FORM}")
    block = peer.get("ipBlock")
    if block is None:
        return
    if not isinstance(block, dict):
        raise InvalidInput(f"{field}.ipBlock", "is no map: write {cidr: 10.20.0.0/16}")
    excepted = block.get("except") or []
    if not isinstance(excepted, list):
        raise InvalidInput(f"{field}.ipBlock.except", "is no list: write [10.20.1.0/24]")
    for name, cidr in [("cidr", block.get("cidr")), *(("except", each) for each in excepted)]:
        try:
            # The API server takes 10.20.1.5/16 as well.
            ip_network(str(cidr), strict=False)
        except ValueError as error:
            raise InvalidInput(
                f"{field}.ipBlock.{name}", f"{error}: write 10.20.0.0/16, a single address with /32"
            ) from error
        if "/" not in str(cidr):
            raise InvalidInput(
                f"{field}.ipBlock.{name}",
                f"{cidr} has no prefix length: write {cidr}/{32 if '.' in str(cidr) else 128}",
            )
