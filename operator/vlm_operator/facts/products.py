"""What a GPU's name says about it, by a table of whole words (products.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from vlm_operator.facts.labels import tokens
from vlm_operator.facts.types import ComputeCapability

# Nominal sizes (AWS says 16,384 MiB for a T4 that reports 15,360) differ from NVML's by less than this share.
_NOMINAL_TOLERANCE: Final = 0.10


@dataclass(frozen=True)
class Product:
    """One row of products.yaml."""

    tokens: frozenset[str]
    """All of them stand in the name."""
    compute_capability: ComputeCapability
    memory_mib: tuple[int, ...]
    """The sizes that cards of this name come in, as NVML reports them; empty where not known."""
    source: str

    @property
    def only_memory_mib(self) -> int | None:
        """The memory, where every card of this name has the same."""
        return self.memory_mib[0] if len(self.memory_mib) == 1 else None

    def memory_near(self, nominal_mib: int) -> int | None:
        """The size that a nominal one stands for; never more than either says. None where none is near."""
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
        )
        for row in rows
    )
    return tuple(sorted(table, key=lambda product: (-len(product.tokens), sorted(product.tokens))))


def product(name: str | None) -> Product | None:
    """The most specific row whose words all stand in ``name``, in any spelling that clouds and drivers use
    (``NVIDIA-H100-80GB-HBM3``, ``nvidia-h100-80gb``, ``H100_NVLINK_80GB``); None where no row does, and where two
    equally specific rows disagree."""
    if name is None:
        return None
    words = tokens(name)
    found = [row for row in products() if row.tokens <= words]
    best = [row for row in found if len(row.tokens) == len(found[0].tokens)]
    return best[0] if len({row.compute_capability for row in best}) == 1 else None
