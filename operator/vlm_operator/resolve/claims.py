"""Claims that more than one pod mounts: whether there can be another pod at all, and whether on another node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from vlm_api.plan import Finding, Severity
from vlm_api.spec import VLMServiceSpec
from vlm_operator.facts.labels import mapping, mappings
from vlm_operator.facts.types import ClaimFacts, NodeFacts

HOSTNAME = "kubernetes.io/hostname"


def shared_claims(spec: VLMServiceSpec) -> dict[str, str]:
    """Claims of which it matters how many pods may use them: name -> the field that names it."""
    return _mounted(spec) if _at_once(spec) > 1 else {}


def claim_findings(
    spec: VLMServiceSpec, claims: Mapping[str, ClaimFacts], nodes: Sequence[NodeFacts], devices_per_pod: int
) -> list[Finding]:
    """What the access modes of shared claims forbid, by claim.

    ``claims``: those that could be read. ``nodes``: those that the plan was made for, none where that is not known.
    """
    if not (shared := shared_claims(spec)):
        return []
    one_node = _on_one_node(spec, nodes, devices_per_pod)
    return [
        finding
        for name, path in sorted(shared.items())
        if (finding := _finding(spec, name, path, claims.get(name), one_node=one_node)) is not None
    ]


def _finding(spec: VLMServiceSpec, name: str, path: str, claim: ClaimFacts | None, *, one_node: bool) -> Finding | None:
    pods, at_once = _wanted(spec), _at_once(spec)
    if claim is None or not claim.access_modes:
        return Finding(
            severity=Severity.INFO,
            reason="ClaimNotChecked",
            message=f"{at_once} pods may mount the claim {name} at once, and its access modes could not be read: see to it that "
            "they are ReadWriteMany, or ReadOnlyMany for a model that is there already",
            path=path,
        )
    if claim.one_pod and pods > 1:
        # An autoscaler may never ask for the second one.
        sure = _least_replicas(spec) * spec.multinode.node_count > 1
        return Finding(
            severity=Severity.ERROR if sure else Severity.WARNING,
            reason="ClaimForOnePod",
            message=f"{'' if sure else 'up to '}{pods} pods are wanted and the claim {name} is for one (ReadWriteOncePod): the "
            f"others could never be scheduled; {_instead(path)}, or want one pod",
            path=path,
        )
    if claim.one_pod or (claim.one_node and pods == 1 and not one_node):
        mode = "pod" if claim.one_pod else "node"
        return Finding(
            severity=Severity.WARNING,
            reason="ClaimForOnePod" if claim.one_pod else "ClaimOnOneNode",
            message=f"a roll-out starts the new pod beside the old one, whose claim {name} is for one {mode} at a time "
            f"({', '.join(claim.access_modes)}), and neither makes room: set rolloutStrategy.maxSurge to 0 and maxUnavailable "
            f"to 1, or {_instead(path)}",
            path="spec.rolloutStrategy.maxSurge",
        )
    if claim.one_node and not one_node:
        return Finding(
            severity=Severity.WARNING,
            reason="ClaimOnOneNode",
            message=f"{at_once} pods may come to several nodes, and the claim {name} is attached to one node at a time "
            f"({', '.join(claim.access_modes)}): on the others they would wait for it without end, unless its storage is not "
            f"attached, as NFS is not; {_instead(path)}, or hold the pods to one node (nodeSelector {HOSTNAME} in spec.template)",
            path=path,
        )
    return None


def _instead(path: str) -> str:
    if path == "spec.model.uri":
        return "take a claim with ReadOnlyMany or ReadWriteMany"
    if path == "spec.model.cacheClaim":
        return "take a claim with ReadWriteMany, or none, so that each pod downloads for itself"
    return "take a claim with ReadWriteMany, or one for each pod (ephemeral.volumeClaimTemplate)"


def _mounted(spec: VLMServiceSpec) -> dict[str, str]:
    """Claims of the pods: name -> the field that names it."""
    found: dict[str, str] = {}
    for volume in reversed(mappings(mapping(spec.template, "spec").get("volumes"))):
        name = mapping(volume, "persistentVolumeClaim").get("claimName")
        if isinstance(name, str):
            found[name] = f"spec.template.spec.volumes[name={volume.get('name')}]"
    if spec.model.cache_claim is not None:
        found[spec.model.cache_claim] = "spec.model.cacheClaim"
    if spec.model.uri.startswith("pvc://"):
        found[spec.model.uri.removeprefix("pvc://").partition("/")[0]] = "spec.model.uri"
    return found


def _replicas(spec: VLMServiceSpec) -> int:
    """The most replicas that are wanted."""
    if spec.scaling is not None:
        return spec.scaling.max_replicas
    return 1 if spec.replicas is None else spec.replicas


def _least_replicas(spec: VLMServiceSpec) -> int:
    return spec.scaling.min_replicas if spec.scaling is not None else _replicas(spec)


def _wanted(spec: VLMServiceSpec) -> int:
    """Pods of all replicas."""
    return _replicas(spec) * spec.multinode.node_count


def _at_once(spec: VLMServiceSpec) -> int:
    """Pods that have to be there at the same time. In a roll-out those are more only where none may be missing."""
    replicas, rollout = _replicas(spec), spec.rollout_strategy
    surge = math.ceil(_share(rollout.max_surge, replicas))
    if surge and math.floor(_share(rollout.max_unavailable, replicas)) == 0:
        replicas += surge
    return replicas * spec.multinode.node_count


def _share(said: int | str, replicas: int) -> Fraction | int:
    """A number or a percentage of replicas, of which Kubernetes rounds surge up and what may be missing down."""
    return Fraction(int(said[:-1]) * replicas, 100) if isinstance(said, str) else said


def _on_one_node(spec: VLMServiceSpec, nodes: Sequence[NodeFacts], devices_per_pod: int) -> bool:
    """Whether all pods come to the same node: they are held to it, or it is the only one and has room for all."""
    pod: Mapping[str, Any] = mapping(spec.template, "spec")
    if pod.get("nodeName") or HOSTNAME in mapping(pod, "nodeSelector"):
        return True
    if len(nodes) != 1 or nodes[0].gpu is None:
        return False
    return nodes[0].gpu.devices >= devices_per_pod * _at_once(spec)
