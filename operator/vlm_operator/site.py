"""What the operator's installer decided about networks, read from the command line."""

from __future__ import annotations

import json
from typing import Any, Final

from vlm_operator.errors import InvalidInput
from vlm_operator.render import Site

_FORM: Final = "write a JSON list of NetworkPolicyEgressRules, maps with `to` and `ports`"


def site(network_policies: bool, extra_egress: str) -> Site:
    """``extra_egress``: a JSON list of networking.k8s.io/v1 NetworkPolicyEgressRules, or empty.

    Raises InvalidInput where it is none. What stands inside a rule is the API server's to check, but for an empty rule,
    which would open everything.
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
        if not all(isinstance(port, dict) for port in rule.get("ports") or []):
            raise InvalidInput(
                f"--extra-egress[{number}].ports", "is no list of maps: write [{protocol: TCP, port: 443}]"
            )
    return Site(network_policies, tuple(rules))
