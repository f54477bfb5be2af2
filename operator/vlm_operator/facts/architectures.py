"""Words for GPU architectures, from the compute capability alone."""

from __future__ import annotations

from typing import Final

from vlm_operator.facts.types import ComputeCapability

# First compute capability of each range -> word. NVIDIA GPU feature discovery uses the same words for
# nvidia.com/gpu.family. Blackwell is 10.x (data centre) and 12.x (workstations, GB10): two instruction sets, one word.
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
    """The architecture's word, such as ``hopper`` for 9.0; None where it has none or nothing is known."""
    word = None
    for first, name in _RANGES:
        if capability is not None and capability >= first:
            word = name
    return word
