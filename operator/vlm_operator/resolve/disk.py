"""The weights that pods download to their nodes' disks: what a pod asks for there, and whether a node has so much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_api.names import CACHE_MOUNT, CACHE_VOLUME, MAIN_CONTAINER
from vlm_api.plan import Finding, Severity
from vlm_operator import memory
from vlm_operator.facts.labels import mapping, mappings, quantity
from vlm_operator.facts.types import NodeFacts
from vlm_operator.resolve.context import Context
from vlm_operator.resolve.pod_memory import engine_container

STORAGE: Final = "ephemeral-storage"
CLAIM_PATH: Final = "spec.model.cacheClaim"
LIMIT_PATH: Final = f"spec.template.spec.containers[name={MAIN_CONTAINER}].resources.limits.{STORAGE}"
# Where Hugging Face's library and the engine are told to keep what they download.
HOMES: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
GRANULE_MIB: Final = 256


def downloaded_mib(context: Context) -> int:
    """MiB of weights that each pod downloads to its node's disk: all of them, also in a group of several nodes. 0 where
    there are none, or where they go or how large they are is not known."""
    spec, choices = context.spec, context.choices
    if not spec.model.uri.startswith("hf://") or spec.model.cache_claim or _has_own_cache(spec.template):
        return 0
    if "download_dir" in choices.settings or any(n in choices.env or n in choices.referenced_env for n in HOMES):
        return 0
    return memory.round_up(memory.weights_mib(context.model, 1) or 0, GRANULE_MIB)


def disk_request_mib(template: Mapping[str, Any], downloaded: int, nodes: Sequence[NodeFacts]) -> int | None:
    """What the pod asks for; None: nothing.

    Only nodes that say what they have can be asked: a kubelet that does not measure its disk offers none, and an
    autoscaler does not know the disk of every node that is not there yet. A limit of the user's that is below stands for
    the request, as Kubernetes takes it.
    """
    limit = _resource(template, "limits")
    if not downloaded or _most(nodes) is None or (limit is not None and limit < downloaded):
        return None
    return downloaded


def disk_findings(template: Mapping[str, Any], downloaded: int, nodes: Sequence[NodeFacts]) -> list[Finding]:
    """Warnings where the download has no room: on none of the nodes, or within the user's own limit."""
    findings = []
    most, asked, limit = _most(nodes), _resource(template, "requests"), _resource(template, "limits")
    step = f"keep them in a claim ({CLAIM_PATH})"
    if most is not None and downloaded > most:
        waits = asked is None or asked > most
        end = "it waits for a larger one" if waits else "it would be evicted before all of them are there"
        findings.append(
            Finding(
                severity=Severity.WARNING,
                reason="NodeDiskTooSmall",
                message=f"each pod downloads {downloaded:,} MiB of weights to its node's disk, and the largest of these nodes "
                f"offers {most:,} MiB of it ({STORAGE}): {end}; {step}, or take nodes with larger disks",
                path=CLAIM_PATH,
            )
        )
    if limit is not None and limit < downloaded:
        findings.append(
            Finding(
                severity=Severity.WARNING,
                reason="DiskLimitTooLow",
                message=f"{limit:,} MiB are less than the {downloaded:,} MiB of weights that the pod downloads to its node's "
                f"disk: the kubelet would evict it; raise the limit, or {step}",
                path=LIMIT_PATH,
            )
        )
    return findings


def _most(nodes: Sequence[NodeFacts]) -> int | None:
    """What the node with the largest disk offers; None where one of them does not say."""
    sizes = [n.ephemeral_storage_mib for n in nodes]
    return max((s for s in sizes if s is not None), default=None) if None not in sizes else None


def _resource(template: Mapping[str, Any], kind: str) -> int | None:
    amount = quantity(mapping(engine_container(template), "resources", kind).get(STORAGE))
    return None if amount is None else int(amount / memory.MIB)


def _has_own_cache(template: Mapping[str, Any]) -> bool:
    """Whether the user put another volume where downloads go."""
    mounts = mappings(engine_container(template).get("volumeMounts"))
    volumes = mappings(mapping(template, "spec").get("volumes"))
    return any(str(m.get("mountPath")).startswith(CACHE_MOUNT) for m in mounts) or any(
        v.get("name") == CACHE_VOLUME for v in volumes
    )
