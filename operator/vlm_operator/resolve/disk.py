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
STEP: Final = f"keep them in a claim ({CLAIM_PATH})"
LIMIT_PATH: Final = f"spec.template.spec.containers[name={MAIN_CONTAINER}].resources.limits.{STORAGE}"
# Where Hugging Face's library and the engine are told to keep what they download.
HOMES: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
# Formats with which the engine reads no weights from the hub.
NOT_FROM_THE_HUB: Final = ("dummy", "remote", "remote_instance")
GRANULE_MIB: Final = 256


def downloaded_mib(context: Context) -> int:
    """MiB of weights that each pod downloads to its node's disk: all of them, also in a group of several nodes. 0 where
    there are none, or where they go or how large they are is not known."""
    spec, choices = context.spec, context.choices
    if not spec.model.uri.startswith("hf://") or spec.model.cache_claim or _has_own_cache(spec.template):
        return 0
    if choices.get("load_format") in NOT_FROM_THE_HUB or "download_dir" in choices.settings:
        return 0
    if any(n in choices.env or n in choices.referenced_env for n in HOMES):
        return 0
    return memory.round_up(memory.weights_mib(context.model, 1) or 0, GRANULE_MIB)


def disk(
    template: Mapping[str, Any], downloaded: int, nodes: Sequence[NodeFacts], *, sure: bool
) -> tuple[int | None, list[Finding]]:
    """What each pod asks for in MiB (None: nothing), and Warnings where the download has no room: on none of the nodes, or
    within the user's own limit.

    Only nodes that say what they have can be asked: a kubelet that does not measure its disk offers none, and an
    autoscaler does not know the disk of every node that is not there yet. A limit of the user's that is below stands for
    the request, as Kubernetes takes it. ``sure``: whether the files' own size is known; without it no pod waits for a disk
    that no node has.
    """
    if not downloaded:
        return None, []
    resources = mapping(engine_container(template), "resources")
    limit, most = _mib(resources, "limits"), _most(nodes)
    too_low = limit is not None and limit < downloaded
    findings = [] if limit is None or not too_low else [_limit_too_low(limit, downloaded)]
    if most is None:
        return None, findings
    if most < downloaded:
        findings.append(_too_small(most, downloaded, _mib(resources, "requests"), sure=sure))
    return None if too_low or (most < downloaded and not sure) else downloaded, findings


def group_downloads(downloaded: int, node_count: int) -> list[Finding]:
    """A group whose pods download the weights each for itself.

    The engine's ranks wait 480 s for each other after loading (UNBALANCED_MODEL_LOADING_TIMEOUT_S of SGLang 0.5.23), then
    all end; what was downloaded goes with the pods.
    """
    if not downloaded or node_count == 1:
        return []
    return [
        Finding(
            severity=Severity.WARNING,
            reason="GroupDownloads",
            message=f"each of the {node_count} pods of a copy downloads {downloaded:,} MiB of weights itself, and the engine "
            f"gives up where one has loaded them 8 minutes after another; {STEP} that all may read (ReadOnlyMany, ReadWriteMany)",
            path=CLAIM_PATH,
        )
    ]


def _too_small(most: int, downloaded: int, asked: int | None, *, sure: bool) -> Finding:
    waits, so_far = sure if asked is None else asked > most, "" if sure else ", as far as is known,"
    end = "it waits for a larger one" if waits else "it would be evicted before all of them are there"
    return Finding(
        severity=Severity.WARNING,
        reason="NodeDiskTooSmall",
        message=f"each pod downloads {downloaded:,} MiB of weights{so_far} to its node's disk, and the largest of these nodes "
        f"offers {most:,} MiB of it ({STORAGE}): {end}; {STEP}, or take nodes with larger disks",
        path=CLAIM_PATH,
    )


def _limit_too_low(limit: int, downloaded: int) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        reason="DiskLimitTooLow",
        message=f"{limit:,} MiB are less than the {downloaded:,} MiB of weights that the pod downloads to its node's disk: the "
        f"kubelet would evict it; raise the limit, or {STEP}",
        path=LIMIT_PATH,
    )


def _most(nodes: Sequence[NodeFacts]) -> int | None:
    """What the node with the largest disk offers; None where one of them does not say."""
    most = None
    for node in nodes:
        if node.ephemeral_storage_mib is None:
            return None
        most = max(most or 0, node.ephemeral_storage_mib)
    return most


def _mib(resources: Mapping[str, Any], kind: str) -> int | None:
    amount = quantity(mapping(resources, kind).get(STORAGE))
    return None if amount is None else int(amount / memory.MIB)


def _has_own_cache(template: Mapping[str, Any]) -> bool:
    """Whether the user put another volume where downloads go."""
    mounts = mappings(engine_container(template).get("volumeMounts"))
    volumes = mappings(mapping(template, "spec").get("volumes"))
    return any(f"{m.get('mountPath')}/".startswith(f"{CACHE_MOUNT}/") for m in mounts) or any(
        v.get("name") == CACHE_VOLUME for v in volumes
    )
