"""The installer's decisions about networks, read from the command line."""

import json
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final

from vlm_operator.errors import InvalidInput
from vlm_operator.manifests.names import Manifest

_OPTION: Final = "--extra-egress"
_ARRAY: Final = "must be a JSON array of NetworkPolicyEgressRule objects"


@dataclass(frozen=True)
class Site:
    """What the operator's installer decided for all services."""

    network_policies: bool = True
    extra_egress: tuple[Manifest, ...] = ()
    """NetworkPolicyEgressRules for what every service also needs, such as a private registry of models."""


USUAL_SITE: Final = Site()


def parse_site(network_policies: bool, extra_egress: str) -> Site:
    """``extra_egress``: a JSON array of networking.k8s.io/v1 NetworkPolicyEgressRules, or empty.

    Raises InvalidInput for anything else, for an empty rule, which would open everything, and for an address without a
    prefix length. The API server checks the rest.
    """
    if not extra_egress.strip():
        return Site(network_policies)
    try:
        rules: Any = json.loads(extra_egress)
    except ValueError as error:
        raise InvalidInput(_OPTION, f"{_ARRAY}: {error}") from error
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise InvalidInput(_OPTION, _ARRAY)
    for number, rule in enumerate(rules):
        _check_rule(f"{_OPTION}[{number}]", rule)
    return Site(network_policies, tuple(rules))


def _check_rule(field: str, rule: Manifest) -> None:
    if not (rule.get("to") or rule.get("ports")):
        raise InvalidInput(field, "must have to or ports: an empty rule opens every address")
    if unknown := sorted(rule.keys() - {"to", "ports"}):
        raise InvalidInput(f"{field}.{unknown[0]}", "unknown field: a rule has only to and ports")
    _check_array(f"{field}.ports", rule.get("ports") or [], dict, "objects such as {protocol: TCP, port: 443}")
    peers = rule.get("to") or []
    _check_array(f"{field}.to", peers, dict, "objects such as {ipBlock: {cidr: 10.20.0.0/16}}")
    for index, peer in enumerate(peers):
        if peer.get("ipBlock") is not None:
            _check_block(f"{field}.to[{index}].ipBlock", peer["ipBlock"])


def _check_block(field: str, block: Any) -> None:
    if not isinstance(block, dict):
        raise InvalidInput(field, "must be an object such as {cidr: 10.20.0.0/16}")
    excepted = block.get("except") or []
    _check_array(f"{field}.except", excepted, str, "blocks such as 10.20.1.0/24")
    for name, cidr in [("cidr", block.get("cidr")), *(("except", each) for each in excepted)]:
        try:
            # The API server accepts 10.20.1.5/16 as well.
            ip_network(str(cidr), strict=False)
        except ValueError as error:
            raise InvalidInput(
                f"{field}.{name}", f"{error}: write 10.20.0.0/16, or a single address with /32"
            ) from error
        if "/" not in str(cidr):
            length = 32 if "." in str(cidr) else 128
            raise InvalidInput(f"{field}.{name}", f"{cidr} has no prefix length: write {cidr}/{length}")


def _check_array(field: str, value: Any, kind: type, of: str) -> None:
    if not isinstance(value, list) or not all(isinstance(entry, kind) for entry in value):
        raise InvalidInput(field, f"must be an array of {of}")
