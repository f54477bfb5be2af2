"""Writes docs/hardware.md: what the table of products says of each GPU, and which measured sets apply to it.

``make chart`` runs it; a test says when the page is out of date.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

PAGE: Final = Path(__file__).with_name("hardware.md")
OPERATOR: Final = Path(__file__).resolve().parents[1] / "operator" / "vlm_operator"
PRODUCTS: Final = OPERATOR / "facts" / "products.yaml"
PROFILES: Final = OPERATOR / "profiles"
GENERATIONS: Final = {
    "9.0": "Hopper", "10.0": "Blackwell", "10.3": "Blackwell Ultra", "12.0": "Blackwell, workstations", "12.1": "GB10",
    "8.9": "Ada Lovelace", "8.6": "Ampere", "8.0": "Ampere, data centres", "7.5": "Turing", "7.0": "Volta",
}  # fmt: skip
HEAD: Final = """# Hardware

GPU feature discovery's labels say what a node has. Where there are none, or less than all of them, the name of the product
does, by this table, and where no label tells anything, `spec.hardware`. A GPU that is not here is planned for by its labels,
and where those leave its compute capability open, with the engine's defaults. Numbers are NVML's; a source stands behind each
in [products.yaml](../operator/vlm_operator/facts/products.yaml), and a row there is all that a new GPU needs.

Besides NVIDIA's GPUs there is the CPU (`hardware.device: cpu`), for trying things out. MIG slices count with their own memory;
time-sliced shares with the whole card's, since nothing divides it, and MPS clients with their equal part of it.

*Measured set* names the model families for which somebody measured a set of values on such a GPU. **We have measured nothing**;
[tuning.md](tuning.md) says who did.

| name has the words | compute capability | generation | MiB of one device | measured set |
|---|---|---|---|---|
"""


def rows() -> Iterator[str]:
    """One row a product, in the order of the table."""
    measured = list(sets())
    for found in yaml.safe_load(PRODUCTS.read_text()):
        capability, sizes = found["computeCapability"], found.get("memoryMiB", [])
        memory = ", ".join(f"{size:,}" for size in sizes) or "from its label"
        largest = max(sizes, default=None)
        families = {f for f, on, least in measured if on == capability and (largest is None or largest >= least)}
        cells = [" ".join(found["tokens"]), capability, GENERATIONS[capability], memory]
        yield f"| {' | '.join([*cells, ', '.join(sorted(families)) or 'none'])} |"


def sets() -> Iterator[tuple[str, str, int]]:
    """(family, compute capability, least memory in MiB) of every measured set that is shipped."""
    for path in sorted(PROFILES.glob("*.yaml")):
        family = yaml.safe_load(path.read_text())
        for profile in family.get("profiles", []):
            when = profile.get("when", {})
            for capability in when.get("compute_capability", GENERATIONS):
                yield family["family"], capability, int(when.get("min_memory_mib", 0))


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
