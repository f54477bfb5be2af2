"""The weights that pods download to their nodes' disks."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from vlm_api.names import CACHE_MOUNT, CACHE_VOLUME
from vlm_api.template import main_container
from vlm_operator.facts.nodes.labels import mapping, mappings, quantity
from vlm_operator.facts.types import NodeFacts
from vlm_operator.sglang import memory
from vlm_operator.sglang.context import Context

STORAGE: Final = "ephemeral-storage"
# Where Hugging Face's library and the engine keep what they download.
HOMES: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
# Formats with which the engine reads no weights from the hub.
NOT_FROM_THE_HUB: Final = ("dummy", "remote", "remote_instance")
GRANULE_MIB: Final = 256


def downloaded_mib(context: Context) -> int:
    """MiB of weights that each pod downloads to its node's disk: all of them, also in a group. 0 if there are none, or if
    their place or size is unknown."""
    spec, choices = context.spec, context.choices
    if not spec.model.uri.startswith("hf://") or spec.model.cache_claim or _has_own_cache(spec.template):
        return 0
    if choices.get("load_format") in NOT_FROM_THE_HUB or "download_dir" in choices.settings:
        return 0
    if any(n in choices.env or n in choices.referenced_env for n in HOMES):
        return 0
    return memory.round_up(memory.weights_mib(context.model, 1) or 0, GRANULE_MIB)


def requested_disk_mib(context: Context, nodes: Sequence[NodeFacts]) -> int | None:
    """MiB of disk that each pod requests for its download; None if it requests none.

    Only nodes that report their disk count: a kubelet that does not measure it offers none, and an autoscaler does not know
    the disk of nodes to come. A lower limit of the user's stands for the request, as Kubernetes reads it. Unless the files'
    own size is known, no pod waits for a disk that no node has.
    """
    downloaded, most = downloaded_mib(context), largest_disk_mib(nodes)
    limit = disk_mib(context.spec.template, "limits")
    if not downloaded or most is None or (limit is not None and limit < downloaded):
        return None
    return None if most < downloaded and context.model.evidence is None else downloaded


def largest_disk_mib(nodes: Sequence[NodeFacts]) -> int | None:
    """What the node with the largest disk offers; None if one of them does not report it."""
    sizes = [node.ephemeral_storage_mib for node in nodes]
    known = [size for size in sizes if size is not None]
    return max(known) if known and len(known) == len(sizes) else None


def disk_mib(template: Mapping[str, Any], kind: str) -> int | None:
    """The user's own ``requests`` or ``limits`` of disk."""
    amount = quantity(mapping(main_container(template), "resources", kind).get(STORAGE))
    return None if amount is None else int(amount / memory.MIB)


def _has_own_cache(template: Mapping[str, Any]) -> bool:
    """Whether the user mounts another volume where downloads go."""
    mounts = mappings(main_container(template).get("volumeMounts"))
    volumes = mappings(mapping(template, "spec").get("volumes"))
    return any(f"{m.get('mountPath')}/".startswith(f"{CACHE_MOUNT}/") for m in mounts) or any(
        v.get("name") == CACHE_VOLUME for v in volumes
    )
