"""Nodes that are the same to a plan, and how one such class differs from another."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vlm_operator.facts.types import GpuFacts, NodeFacts


@dataclass(frozen=True)
class HardwareClass:
    """Nodes that are the same to a plan."""

    gpu: GpuFacts
    """The facts they share; ``devices`` is the largest number that one of them has."""
    nodes: tuple[NodeFacts, ...]
    free: int
    """Devices that no pod requests, on all of them."""


def hardware_classes(nodes: Iterable[NodeFacts], in_use: Mapping[str, int]) -> list[HardwareClass]:
    """The classes of nodes with GPUs. ``in_use``: devices that pods request, by node."""
    groups: dict[tuple[Any, ...], list[NodeFacts]] = {}
    for node in nodes:
        gpu = node.gpu
        assert gpu is not None
        key = (
            *(gpu.source, gpu.product, gpu.compute_capability, gpu.memory_mib, gpu.sharing, gpu.virtual, gpu.claims),
            *(gpu.time_sliced, node.cpu_architecture),
        )
        groups.setdefault(key, []).append(node)
    return [_class(tuple(group), in_use) for group in groups.values()]


def _class(nodes: tuple[NodeFacts, ...], in_use: Mapping[str, int]) -> HardwareClass:
    gpus = [n.gpu for n in nodes if n.gpu is not None]
    free = sum([max(g.allocatable - in_use.get(n.name, 0), 0) for n, g in zip(nodes, gpus, strict=True)])
    shared = {k: v for k, v in gpus[0].match_labels.items() if all(g.match_labels.get(k) == v for g in gpus)}
    devices = max(g.devices for g in gpus)
    unhealthy = max(g.present for g in gpus) - devices
    return HardwareClass(replace(gpus[0], devices=devices, unhealthy=unhealthy, match_labels=shared), nodes, free)


def held_to_architecture(best: HardwareClass, classes: list[HardwareClass]) -> HardwareClass:
    """The class with the processors' architecture among its labels, if GPUs with these labels exist beside other processors."""
    label, wanted = "kubernetes.io/arch", best.nodes[0].cpu_architecture
    alike = [c for c in classes if c.gpu.match_labels == best.gpu.match_labels]
    if all(c.nodes[0].cpu_architecture == wanted for c in alike) or any(
        n.labels.get(label) != wanted for n in best.nodes
    ):
        return best
    return replace(best, gpu=replace(best.gpu, match_labels={**best.gpu.match_labels, label: wanted}))


def difference(other: HardwareClass, best: HardwareClass) -> str:
    """How ``other`` differs from ``best``, as the rest of a sentence about one of its nodes."""
    theirs, ours = named(other.gpu), named(best.gpu)
    there, here = other.nodes[0].cpu_architecture, best.nodes[0].cpu_architecture
    if there != here:
        gpus = f" and {theirs}" if theirs != ours else ""
        return f"has {there} processors{gpus}, and the nodes chosen have {here}{f' and {ours}' if gpus else ''}"
    if other.gpu.virtual != best.gpu.virtual:
        theirs, ours = (f"{named(gpu)}, {'virtual' if gpu.virtual else 'bare'}" for gpu in (other.gpu, best.gpu))
    elif theirs == ours and other.gpu.memory_mib != best.gpu.memory_mib:
        theirs, ours = (f"{named(gpu)}, {memory_of(gpu)}" for gpu in (other.gpu, best.gpu))
    return f"has other GPUs ({theirs}) than the ones chosen ({ours})"


def named(gpu: GpuFacts) -> str:
    """The GPU in words: its product, else its compute capability."""
    return gpu.product or (f"compute capability {gpu.compute_capability}" if gpu.compute_capability else "unknown")


def memory_of(gpu: GpuFacts) -> str:
    """Its memory in words."""
    return "unknown memory" if gpu.memory_mib is None else f"{gpu.memory_mib:,} MiB"
