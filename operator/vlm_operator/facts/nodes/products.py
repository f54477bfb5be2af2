"""GPU names (products.yaml, matched by whole words) and ranges of compute capability -> specs and architecture."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from vlm_operator.facts.nodes.labels import tokens
from vlm_operator.facts.types import ComputeCapability

# Nominal sizes (AWS says 16,384 MiB for a T4 that reports 15,360) differ from NVML's by less than this share.
_NOMINAL_TOLERANCE: Final = 0.10


@dataclass(frozen=True)
class Product:
    """One row of products.yaml."""

    tokens: frozenset[str]
    """Words that a name must all contain."""
    compute_capability: ComputeCapability
    memory_mib: tuple[int, ...]
    """The memory sizes of GPUs with this name, as NVML reports them; empty if unknown."""
    source: str
    roofline: tuple[float, float] | None = None
    """Peak dense BF16 in 10^12 operations per second, and memory bandwidth in 10^12 bytes per second."""

    @property
    def only_memory_mib(self) -> int | None:
        """The memory if all GPUs with this name have the same size, else None."""
        return self.memory_mib[0] if len(self.memory_mib) == 1 else None

    def memory_near(self, nominal_mib: int) -> int | None:
        """The size that matches a nominal size: the smaller of the two. None if no size is near."""
        nearest = min(self.memory_mib, key=lambda size: abs(size - nominal_mib), default=None)
        if nearest is None or abs(nearest - nominal_mib) > _NOMINAL_TOLERANCE * nearest:
            return None
        return min(nearest, nominal_mib)


@cache
def products() -> tuple[Product, ...]:
    """The table, most specific rows first."""
    rows: list[dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("products.yaml").read_text("utf-8"))
    table = (
        Product(
            tokens=frozenset(row["tokens"]),
            compute_capability=ComputeCapability(*(int(part) for part in row["computeCapability"].split("."))),
            memory_mib=tuple(row.get("memoryMiB", ())),
            source=row["source"],
            roofline=tuple(row["roofline"]) if "roofline" in row else None,
        )
        for row in rows
    )
    return tuple(sorted(table, key=lambda product: (-len(product.tokens), sorted(product.tokens))))


def product(name: str | None) -> Product | None:
    """The most specific row whose words are all in ``name``, in any spelling that clouds and drivers use
    (``NVIDIA-H100-80GB-HBM3``, ``nvidia-h100-80gb``, ``H100_NVLINK_80GB``); None if no row matches, or if two equally
    specific rows disagree."""
    if name is None:
        return None
    words = tokens(name)
    found = [row for row in products() if row.tokens <= words]
    best = [row for row in found if len(row.tokens) == len(found[0].tokens)]
    return best[0] if len({row.compute_capability for row in best}) == 1 else None


# First compute capability of each range -> word. NVIDIA GPU feature discovery uses the same words for
# nvidia.com/gpu.family. Blackwell is 10.x (data centre) and 12.x (workstations, GB10): two instruction sets with one word.
_RANGES: Final[tuple[tuple[ComputeCapability, str | None], ...]] = (
    (ComputeCapability(7, 0), "volta"),
    (ComputeCapability(7, 5), "turing"),
    (ComputeCapability(8, 0), "ampere"),
    (ComputeCapability(8, 9), "ada-lovelace"),
    (ComputeCapability(9, 0), "hopper"),
    (ComputeCapability(10, 0), "blackwell"),
    (ComputeCapability(11, 0), None),
    (ComputeCapability(12, 0), "blackwell"),
    (ComputeCapability(13, 0), "rubin"),
    (ComputeCapability(14, 0), None),
)


def architecture(capability: ComputeCapability | None) -> str | None:
    """The name of the architecture, such as ``hopper`` for 9.0; None if it has no name or is unknown."""
    word = None
    for first, name in _RANGES:
        if capability is not None and capability >= first:
            word = name
    return word
