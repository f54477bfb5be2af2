"""Memory and disk of the pod: /dev/shm, the user's own limits, and what the nodes offer. The operator sets no limit."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from vlm_api.names import MAIN_CONTAINER
from vlm_api.plan import Finding, warning
from vlm_api.reasons import FindingReason
from vlm_api.template import main_container
from vlm_operator.checks.types import CheckInput
from vlm_operator.errors import InvalidInput
from vlm_operator.facts.nodes.labels import mapping, quantity
from vlm_operator.placement.downloads import STORAGE, disk_mib, downloaded_mib, largest_disk_mib
from vlm_operator.sglang import memory

RESOURCES_PATH: Final = f"spec.template.spec.containers[name={MAIN_CONTAINER}].resources"


def shared_memory(plan: CheckInput) -> Iterator[Finding]:
    """The user's size of /dev/shm, if it is less than what is computed."""
    written, needed = plan.context.spec.shared_memory_size, plan.memory.shared_memory_mib or 0
    size = quantity(written)
    if size is not None and size < needed * memory.MIB:
        yield warning(
            FindingReason.SHARED_MEMORY_TOO_SMALL,
            f"sharedMemorySize {written} is less than the {needed:,} MiB that images in flight and communication between "
            "GPUs may need, and the engine can fail when /dev/shm is full; raise or remove it",
            "spec.sharedMemorySize",
        )


def limit_below_request(plan: CheckInput) -> Iterator[InvalidInput]:
    """A memory limit below what the pod requests, which the API server rejects."""
    limit, requested = (_amount(plan.context.spec.template, kind) for kind in ("limits", "requests"))
    needed = plan.memory.host_memory_mib or 0
    if limit is None or limit >= needed * memory.MIB or (requested is not None and requested <= limit):
        return
    wanted = needed if requested is None else float(requested) / memory.MIB
    yield InvalidInput(
        f"{RESOURCES_PATH}.limits.memory",
        f"{float(limit) / memory.MIB:,.0f} MiB are less than the {wanted:,.0f} MiB that the pod requests: raise the limit, or "
        "set requests.memory beside it, to that or less",
    )


def memory_limit(plan: CheckInput) -> Iterator[Finding]:
    """A limit below the pod's computed memory."""
    limit, needed = _amount(plan.context.spec.template, "limits"), plan.memory.host_memory_mib or 0
    if limit is not None and limit < needed * memory.MIB:
        yield warning(
            FindingReason.MEMORY_LIMIT_TOO_LOW,
            f"{float(limit) / memory.MIB:,.0f} MiB are less than the estimated {needed:,} MiB for processes, pinned memory and "
            "images in /dev/shm, and the kernel can kill the engine under load; raise or remove it",
            f"{RESOURCES_PATH}.limits.memory",
        )


def node_memory(plan: CheckInput) -> Iterator[Finding]:
    """Nodes that all have less memory than the pod requests, so that the scheduler would use none of them."""
    sizes = [node.memory_mib for node in plan.nodes]
    requested = _amount(plan.context.spec.template, "requests")
    wanted = plan.memory.host_memory_mib or 0 if requested is None else int(requested / memory.MIB)
    most = max((size for size in sizes if size is not None), default=0)
    if not sizes or None in sizes or most >= wanted:
        return
    yield warning(
        FindingReason.NODE_MEMORY_TOO_SMALL,
        f"the pod requests {wanted:,} MiB of memory and the largest of these nodes has {most:,}, so the pod waits for a larger "
        "one; declare fewer requests in flight or smaller images, or set requests.memory of container main in spec.template",
        "spec.workload.concurrency" if requested is None else f"{RESOURCES_PATH}.requests.memory",
    )


def _amount(template: Mapping[str, Any], kind: str) -> Decimal | None:
    return quantity(mapping(main_container(template), "resources", kind).get("memory"))


CLAIM_PATH: Final = "spec.model.cacheClaim"
STEP: Final = f"keep them in a claim ({CLAIM_PATH})"


def disk_limit(plan: CheckInput) -> Iterator[Finding]:
    """The user's own limit is below the download."""
    allowed, downloaded = disk_mib(plan.context.spec.template, "limits"), downloaded_mib(plan.context)
    if allowed is not None and allowed < downloaded:
        yield warning(
            FindingReason.DISK_LIMIT_TOO_LOW,
            f"{allowed:,} MiB are less than the {downloaded:,} MiB of weights that the pod downloads to its node's disk, so the "
            f"kubelet would evict it; raise the limit, or {STEP}",
            f"{RESOURCES_PATH}.limits.{STORAGE}",
        )


def node_disk(plan: CheckInput) -> Iterator[Finding]:
    """None of the nodes offers as much disk as the download takes."""
    downloaded, most = downloaded_mib(plan.context), largest_disk_mib(plan.nodes)
    if most is None or most >= downloaded:
        return
    sure, requested = plan.context.model.evidence is not None, disk_mib(plan.context.spec.template, "requests")
    waits = sure if requested is None else requested > most
    about = "" if sure else "about "
    end = "it waits for a larger one" if waits else "it would be evicted before all are there"
    yield warning(
        FindingReason.NODE_DISK_TOO_SMALL,
        f"each pod downloads {about}{downloaded:,} MiB of weights to its node's disk, and the largest of these nodes offers "
        f"{most:,} MiB of it ({STORAGE}), so {end}; {STEP}, or use nodes with larger disks",
        CLAIM_PATH,
    )


def group_downloads(plan: CheckInput) -> Iterator[Finding]:
    """A group whose pods each download the weights.

    The engine's ranks wait 480 s for each other after loading (UNBALANCED_MODEL_LOADING_TIMEOUT_S of SGLang 0.5.23), then
    all exit, and the downloads are lost with the pods.
    """
    downloaded, nodes = downloaded_mib(plan.context), plan.context.spec.multinode.node_count
    if downloaded and nodes > 1:
        yield warning(
            FindingReason.GROUP_DOWNLOADS,
            f"each of the {nodes} pods of a replica downloads {downloaded:,} MiB of weights itself, and the engine gives up if "
            f"one pod loads them 8 minutes after another; {STEP} that all pods may read (ReadOnlyMany, ReadWriteMany)",
            CLAIM_PATH,
        )
