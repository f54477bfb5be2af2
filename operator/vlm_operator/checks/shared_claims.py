"""Claims that several pods mount: whether there can be another pod at all, and whether on another node."""

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from vlm_api.plan import Finding, error, info, warning
from vlm_api.reasons import FindingReason
from vlm_api.spec import VLMServiceSpec
from vlm_operator.checks.types import CheckInput, ScaleInput
from vlm_operator.facts.nodes.labels import mapping, mappings
from vlm_operator.facts.types import ClaimFacts, NodeFacts

HOSTNAME = "kubernetes.io/hostname"


def shared_claims(spec: VLMServiceSpec) -> dict[str, str]:
    """Claims that several pods mount: name -> the field that names it."""
    return mounted_claims(spec) if _at_once(spec) > 1 else {}


def claims_of(pod_template: Mapping[str, Any]) -> set[str]:
    """Claims that the pods of a plan mount."""
    volumes = mappings(mapping(pod_template, "spec").get("volumes"))
    return {str(mapping(volume, "persistentVolumeClaim").get("claimName")) for volume in volumes}


def missing(plan: CheckInput) -> Iterator[Finding]:
    """Claims that a change would mount in pods that replace others, and that do not exist."""
    for name, path in sorted(mounted_claims(plan.context.spec).items()):
        if name in plan.cluster.missing_claims:
            yield error(
                FindingReason.CLAIM_NOT_FOUND,
                f"the claim {name} does not exist or is being deleted, so the change is not applied: create it, and the change "
                "is applied within a minute, or correct its name",
                path,
            )


def access_modes(scale: ScaleInput) -> Iterator[Finding]:
    """What the access modes of shared claims forbid, by claim."""
    spec, claims = scale.spec, scale.claims
    if not (shared := shared_claims(spec)):
        return
    one_node = _on_one_node(spec, scale.nodes, scale.devices_per_pod)
    for name, path in sorted(shared.items()):
        yield from _forbidden(spec, name, path, claims.get(name), one_node=one_node)


def _forbidden(
    spec: VLMServiceSpec, name: str, path: str, claim: ClaimFacts | None, *, one_node: bool
) -> Iterator[Finding]:
    pods, at_once = _replicas(spec) * spec.multinode.node_count, _at_once(spec)
    if claim is None or not claim.access_modes:
        yield info(
            FindingReason.CLAIM_NOT_CHECKED,
            f"{at_once} pods may mount the claim {name} at once, and its access modes could not be read: make sure that they "
            "are ReadWriteMany, or ReadOnlyMany for a model that is already there",
            path,
        )
    elif claim.one_pod and pods > 1:
        # An autoscaler may never ask for the second one.
        least = spec.scaling.min_replicas if spec.scaling is not None else _replicas(spec)
        sure = least * spec.multinode.node_count > 1
        yield (error if sure else warning)(
            FindingReason.CLAIM_FOR_ONE_POD,
            f"{'' if sure else 'up to '}{pods} pods are requested and the claim {name} is for one (ReadWriteOncePod), so the "
            f"others could never be scheduled; {_instead(path)}, or request one pod",
            path,
        )
    elif claim.one_pod or (claim.one_node and pods == 1 and not one_node):
        reason, mode = FindingReason.CLAIM_ON_ONE_NODE, "node"
        if claim.one_pod:
            reason, mode = FindingReason.CLAIM_FOR_ONE_POD, "pod"
        yield warning(
            reason,
            f"a rollout starts the new pod beside the old one, and their claim {name} is for one {mode} at a time "
            f"({', '.join(claim.access_modes)}), so the new pod waits without end: set rolloutStrategy.maxSurge to 0 and "
            f"maxUnavailable to 1, or {_instead(path)}",
            "spec.rolloutStrategy.maxSurge",
        )
    elif claim.one_node and not one_node:
        yield warning(
            FindingReason.CLAIM_ON_ONE_NODE,
            f"{at_once} pods may run on several nodes, and the claim {name} is attached to one node at a time "
            f"({', '.join(claim.access_modes)}): on the others they would wait for it without end, unless its storage is not "
            f"attached, like NFS; {_instead(path)}, or hold the pods to one node (nodeSelector {HOSTNAME} in spec.template)",
            path,
        )


def _instead(path: str) -> str:
    if path == "spec.model.uri":
        return "use a claim with ReadOnlyMany or ReadWriteMany"
    if path == "spec.model.cacheClaim":
        return "use a claim with ReadWriteMany, or none, so that each pod downloads the model itself"
    return "use a claim with ReadWriteMany, or one for each pod (ephemeral.volumeClaimTemplate)"


def mounted_claims(spec: VLMServiceSpec) -> dict[str, str]:
    """Claims that the pods mount: name -> the field that names it."""
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
    """The most replicas that are requested."""
    if spec.scaling is not None:
        return spec.scaling.max_replicas
    return 1 if spec.replicas is None else spec.replicas


def _at_once(spec: VLMServiceSpec) -> int:
    """Pods that must exist at the same time: in a rollout more than the replicas only if none may be unavailable."""
    replicas, rollout = _replicas(spec), spec.rollout_strategy
    surge = math.ceil(_share(rollout.max_surge, replicas))
    if surge and math.floor(_share(rollout.max_unavailable, replicas)) == 0:
        replicas += surge
    return replicas * spec.multinode.node_count


def _share(written: int | str, replicas: int) -> Fraction | int:
    """A number or a percentage of replicas. Kubernetes rounds a surge up and unavailable replicas down."""
    return Fraction(int(written[:-1]) * replicas, 100) if isinstance(written, str) else written


def _on_one_node(spec: VLMServiceSpec, nodes: Sequence[NodeFacts], devices_per_pod: int) -> bool:
    """Whether all pods run on the same node: they are held to it, or it is the only one and has room for all."""
    pod: Mapping[str, Any] = mapping(spec.template, "spec")
    if pod.get("nodeName") or HOSTNAME in mapping(pod, "nodeSelector"):
        return True
    if len(nodes) != 1 or nodes[0].gpu is None:
        return False
    return nodes[0].gpu.devices >= devices_per_pod * _at_once(spec)
