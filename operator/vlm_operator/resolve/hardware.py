"""Which nodes count, and which class of hardware the plan is made for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

from vlm_api.plan import Finding, PassedOver, Severity, Sharing
from vlm_api.spec import Hardware, VLMServiceSpec
from vlm_operator.facts.types import ComputeCapability, GpuFacts, NodeFacts
from vlm_operator.resolve.classes import (
    HardwareClass,
    difference,
    hardware_classes,
    held_to_architecture,
    memory_of,
    named,
)
from vlm_operator.resolve.placement import refusal

# Sources of facts about GPUs of which the cluster itself tells nothing.
UNTOLD: Final = ("unknown", "spec")


@dataclass(frozen=True)
class Choice:
    """The outcome: the class that was chosen, or none with the reasons."""

    chosen: HardwareClass | None
    passed_over: tuple[PassedOver, ...] = ()
    findings: tuple[Finding, ...] = ()
    source: str = "unknown"
    wished: GpuFacts | None = field(default=None)
    """The GPU that the spec describes, where no node has it yet."""
    avoid_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels of the nodes that the spec's wishes rule out, where no node was chosen."""


def choose_hardware(
    spec: VLMServiceSpec,
    needed: int,
    nodes: tuple[NodeFacts, ...],
    in_use: Mapping[str, int],
    rank: Callable[[GpuFacts], tuple[Any, ...]],
) -> Choice:
    """The class of nodes that the plan is made for.

    ``needed``: devices of each pod. ``rank`` says how well a GPU suits (smaller is better: fits, has a profile); then the
    most free devices, then the product's name, so that the choice does not hang on the order of nodes.
    """
    written = spec.template.get("spec")
    pod = written if isinstance(written, Mapping) else {}
    passed: list[PassedOver] = []
    usable: list[NodeFacts] = []
    never: list[tuple[str, str]] = []  # (reason, sentence) of what can never work
    for node in sorted(nodes, key=attrgetter("name")):
        why = _no_gpu(node) or refusal(node, pod) or _not_wished(spec, node)
        if why is None and node.gpu is not None:
            impossible = _impossible(spec, node.gpu, needed)
            if impossible is None:
                usable.append(_as_said(node, spec.hardware))
                continue
            never.append(impossible)
            why = impossible[1]
        passed.append(_passed(node, why or "has no GPU"))
    classes = hardware_classes(usable, in_use)
    if not classes:
        return replace(_none(spec, tuple(passed), never), avoid_labels=_ruled_out(spec, nodes))
    # To rank takes a plan for each class.
    best = (
        min(classes, key=lambda c: (*rank(c.gpu), c.gpu.source == "spec", -c.free, str(c.gpu.product), c.nodes[0].name))
        if classes[1:]
        else classes[0]
    )
    best = held_to_architecture(best, classes)
    for other in classes:
        if other.nodes is not best.nodes:
            why_not = difference(other, best)
            passed += [_passed(n, why_not) for n in other.nodes]
    in_order = tuple(sorted(passed, key=attrgetter("node")))
    return Choice(best, in_order, tuple(_remarks(spec, best, needed)), best.gpu.source)


def _remarks(spec: VLMServiceSpec, best: HardwareClass, needed: int) -> list[Finding]:
    """What a person should know of the nodes chosen."""
    findings = [_ambiguous(n) for n in best.nodes if n.gpu is not None and n.gpu.ambiguous]
    count = spec.multinode.node_count
    if len(best.nodes) < count:
        findings.append(
            Finding(
                severity=Severity.WARNING,
                reason="TooFewNodes",
                message=f"one copy takes {count} nodes with {needed} devices each and {len(best.nodes)} such nodes are there: "
                "the pods wait until more nodes come; lower multinode.nodeCount or add nodes",
                path="spec.multinode.nodeCount",
            )
        )
    elif best.free < needed * count:
        findings.append(
            Finding(
                severity=Severity.INFO,
                reason="DevicesInUse",
                message=f"{best.free} devices are free on these nodes now and one copy takes {needed * count}: "
                "the pods wait until others end, or until an autoscaler adds a node",
                path="spec.hardware",
            )
        )
    if best.gpu.inferred:
        findings.append(
            Finding(
                severity=Severity.INFO,
                reason="HardwareInferred",
                message=f"{best.gpu.inferred}: {named(best.gpu)} and {memory_of(best.gpu)} are what such machines have; "
                "install GPU feature discovery to be sure, also of how GPUs are shared",
                path="spec.hardware",
            )
        )
    if best.gpu.source in UNTOLD and best.gpu.compute_capability is None:
        findings.append(
            Finding(
                severity=Severity.WARNING,
                reason="HardwareUnknown",
                message="nodes offer GPUs but no label says which: the engine's own defaults are used. "
                "Install GPU feature discovery, or say spec.hardware.computeCapability and minMemoryMiB",
                path="spec.hardware",
            )
        )
    return findings


def _passed(node: NodeFacts, reason: str) -> PassedOver:
    # Not validated: there may be thousands of nodes, and both are texts.
    return PassedOver.model_construct(node=node.name, reason=reason)


def _no_gpu(node: NodeFacts) -> str | None:
    if node.unusable:
        return node.unusable
    if node.gpu is None or node.gpu.allocatable < 1:
        return "has no GPU that pods can ask for"
    return None


def _as_said(node: NodeFacts, wish: Hardware) -> NodeFacts:
    """The node, with its GPU taken at the user's word where the cluster tells nothing of it. The runtime compares it with what
    is there."""
    gpu = node.gpu
    if gpu is None or gpu.source != "unknown" or not (wish.compute_capability or wish.min_memory_mib):
        return node
    capability = _capability(wish)
    said = replace(gpu, source="spec", compute_capability=capability, memory_mib=wish.min_memory_mib)
    return replace(node, gpu=said)


def _capability(wish: Hardware) -> ComputeCapability | None:
    major, _, minor = (wish.compute_capability or "").partition(".")
    return ComputeCapability(int(major), int(minor)) if major else None


def _not_wished(spec: VLMServiceSpec, node: NodeFacts) -> str | None:
    wish, gpu = spec.hardware, node.gpu
    assert gpu is not None
    if wish.compute_capability and gpu.compute_capability and str(gpu.compute_capability) != wish.compute_capability:
        return f"has compute capability {gpu.compute_capability}, and hardware.computeCapability is {wish.compute_capability}"
    if wish.min_memory_mib and gpu.memory_mib is not None and gpu.memory_mib < wish.min_memory_mib:
        return f"has {gpu.memory_mib} MiB a device, and hardware.minMemoryMiB is {wish.min_memory_mib}"
    if wish.products and gpu.product not in wish.products:
        return f"has {gpu.product or 'a product that no label names'}, which is not among hardware.products"
    return None


def _ruled_out(spec: VLMServiceSpec, nodes: tuple[NodeFacts, ...]) -> dict[str, tuple[str, ...]]:
    """Label -> values of the nodes that have other GPUs than wished, those that are cordoned or not ready included.

    By product where that is labelled: future nodes without any label, as autoscalers imagine them, stay possible.
    """
    found: dict[str, set[str]] = {}
    for node in nodes:
        if node.gpu is not None and _not_wished(spec, node):
            key, value = next(iter(node.gpu.match_labels.items()), ("kubernetes.io/hostname", node.name))
            found.setdefault(key, set()).add(value)
    return {key: tuple(sorted(values)) for key, values in sorted(found.items())}


def _impossible(spec: VLMServiceSpec, gpu: GpuFacts, needed: int) -> tuple[str, str] | None:
    """(reason, sentence) for what cannot work on such a node at any time; None when it can."""
    if needed > 1 and gpu.sharing is Sharing.MIG:
        return "TensorParallelOverMIG", (
            f"has MIG slices, which cannot be joined, and the pod needs {needed} devices: "
            "set parallelism to 1 or turn MIG off"
        )
    if needed > 1 and gpu.sharing in (Sharing.TIME_SLICING, Sharing.MPS) and needed > gpu.devices:
        return "SharesAreNotDevices", (
            f"has {gpu.devices} physical GPU{'s' * (gpu.devices != 1)} shared by {gpu.sharing.value}, "
            f"and the pod needs {needed}: shares of one card are one card"
        )
    if needed > 1 and gpu.sharing in (Sharing.TIME_SLICING, Sharing.MPS):
        return "SharesAreNotDevices", (
            f"shares its GPUs by {gpu.sharing.value}: a pod that asks for {needed} may get the same physical GPU twice"
        )
    if gpu.devices and needed > gpu.devices:
        return "TooManyDevices", (
            f"has {gpu.devices} device{'s' * (gpu.devices != 1)} and the pod needs {needed}: "
            "lower parallelism, or spread one copy over more nodes (multinode.nodeCount)"
        )
    return None


def _ambiguous(node: NodeFacts) -> Finding:
    assert node.gpu is not None
    return Finding(
        severity=Severity.WARNING,
        reason="AmbiguousLabels",
        message=f"node {node.name}: {node.gpu.ambiguous}; correct the labels, keep one GPU model a node, "
        "or name the nodes in spec.template",
        path="spec.template",
    )


def _none(spec: VLMServiceSpec, passed: tuple[PassedOver, ...], never: list[tuple[str, str]]) -> Choice:
    if never:
        reason, sentence = never[0]
        return Choice(
            None,
            passed,
            (
                Finding(
                    severity=Severity.ERROR,
                    reason=reason,
                    message=f"no node can ever run this: node {_first(passed, sentence)} {sentence}",
                    path="spec.parallelism",
                ),
            ),
        )
    wish = spec.hardware
    wished = None
    if wish.compute_capability or wish.min_memory_mib:
        product = wish.products[0] if len(wish.products) == 1 else None
        wished = GpuFacts("spec", product, _capability(wish), wish.min_memory_mib)
    message = (
        "no node is there whose GPUs the pods may use"
        + (f" ({len(passed)} passed over)" if passed else "")
        + (
            ": the plan is made for the GPU that spec.hardware describes"
            if wished
            else ": the plan leaves the engine its own defaults"
        )
        + ", and the pods wait for a node that offers the resource; check node labels and taints, or let an autoscaler add one"
    )
    finding = Finding(severity=Severity.WARNING, reason="NoMatchingNodes", message=message, path="spec.hardware")
    return Choice(None, passed, (finding,), "spec" if wished else "unknown", wished)


def _first(passed: tuple[PassedOver, ...], sentence: str) -> str:
    return next((p.node for p in passed if p.reason == sentence), "")
