"""How long a start may take: what is read, and from which storage."""

import math
from typing import Final, NamedTuple

# From the engine's start to the first answer, without reading the weights: imports, kernels compiled at a first start,
# CUDA graphs, warm-up. Generous on purpose, as are the speeds below: a budget that is too short restarts a pod that was
# about to serve, one that is too long only ends a hopeless start later.
BASE_SECONDS: Final = 900

# What a download of an unknown size is given room for: half an hour at the hub's speed, some 22 billion parameters in bf16.
UNKNOWN_DOWNLOAD_MIB: Final = 45_000


# A group's budget begins when its leader starts, which then waits for workers whose nodes may still pull the image of 15 GB.
GROUP_PULL_SECONDS: Final = 1200


class _Storage(NamedTuple):
    """Where weights are stored, by the scheme of ``spec.model.uri``, and an assumed, unmeasured speed in MiB/s."""

    name: str
    mib_per_second: int


_STORAGES: Final = {
    "hf": _Storage("the hub", 25),  # 200 Mbit/s, shared by the pods that start together
    "pvc": _Storage("the claim", 100),  # a small network file system or disk
    "oci": _Storage("the node's disk", 150),  # pulled before the runtime starts
    "file": _Storage("the image or volume", 100),
}


class StartupBudget(NamedTuple):
    """Seconds, and how they were calculated, in one line."""

    seconds: int
    reason: str


def startup_budget(uri: str, weights_mib: float | None, nodes: int = 1) -> StartupBudget:
    """How long a start may take: a base, and all weights read once from the storage of ``spec.model.uri``.

    ``weights_mib`` are those of the whole model; None if unknown. A claim for downloads makes later starts faster, but the
    first one still downloads. ``nodes``: the pods of one replica, which start together or not at all.
    """
    storage = _STORAGES[uri.partition("://")[0]]
    base, base_seconds = f"{BASE_SECONDS:,} s for the engine's start, graphs and warm-up", BASE_SECONDS
    if nodes > 1:
        base += f", {GROUP_PULL_SECONDS:,} s for images that other nodes of the group may still pull"
        base_seconds += GROUP_PULL_SECONDS
    if weights_mib is None and storage is not _STORAGES["hf"]:
        return StartupBudget(base_seconds, f"{base}; the weights' size is unknown")
    size = UNKNOWN_DOWNLOAD_MIB if weights_mib is None else weights_mib
    seconds = math.ceil(size / storage.mib_per_second / 60) * 60
    what = (
        f"{size:,.0f} MiB of weights"
        if weights_mib is not None
        else f"weights of an unknown size, assumed to be {size:,} MiB,"
    )
    reason = f"{base}, and {seconds:,} s for {what} from {storage.name} at {storage.mib_per_second} MiB/s"
    return StartupBudget(base_seconds + seconds, reason)
