"""PersistentVolumeClaims -> ClaimFacts."""

from collections.abc import Iterable, Mapping
from typing import Any

from vlm_operator.facts.nodes.labels import mapping
from vlm_operator.facts.types import ClaimFacts


def claim_facts(claim: Mapping[str, Any]) -> ClaimFacts:
    """Facts about a core/v1 PersistentVolumeClaim in JSON form."""
    modes = mapping(claim, "status").get("accessModes") or mapping(claim, "spec").get("accessModes")
    return ClaimFacts(tuple(str(mode) for mode in modes) if isinstance(modes, list) else ())


def claims_in(namespace: str, claims: Iterable[Mapping[str, Any]]) -> dict[str, ClaimFacts]:
    """The claims in a namespace, by name."""
    return {
        str(mapping(claim, "metadata").get("name")): claim_facts(claim)
        for claim in claims
        if (mapping(claim, "metadata").get("namespace") or "default") == namespace
    }
