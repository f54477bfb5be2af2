"""Which nodes match, and which class of hardware the plan is made for."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

from vlm_api.plan import Finding, PassedOver, Sharing, error, info, warning
from vlm_api.reasons import FindingReason
from vlm_api.spec import Hardware, VLMServiceSpec
from vlm_operator.facts.types import ComputeCapability, GpuFacts, NodeFacts
from vlm_operator.placement.classes import (
    HardwareClass,
    difference,
    hardware_classes,
    held_to_architecture,
    memory_of,
    named,
)
from vlm_operator.placement.scheduler import refusal

# Sources of facts about GPUs that nothing in the cluster describes.
UNLABELLED: Final = ("unknown", "spec")
# Reasons that a message repeats; the plan lists them by node.
SHOWN_REASONS: Final = 3


@dataclass(frozen=True)
class Choice:
    """The outcome: the class that was chosen, or none with the reasons."""

    chosen: HardwareClass | None
    passed_over: tuple[PassedOver, ...] = ()
    findings: tuple[Finding, ...] = ()
    source: str = "unknown"
    described: GpuFacts | None = field(default=None)
    """The GPU that the spec describes, if no node has it yet."""
    avoid_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels of the nodes that spec.hardware rules out, if no node was chosen."""

    @property
    def gpu(self) -> GpuFacts | None:
        """The GPU that the plan is made for; None if nothing is known about it."""
        return self.described if self.chosen is None else self.chosen.gpu

    @property
    def nodes(self) -> tuple[NodeFacts, ...]:
        """The nodes of the chosen class."""
        return () if self.chosen is None else self.chosen.nodes


def needs_usage(nodes: Iterable[NodeFacts]) -> bool:
    """Whether ``choose_hardware`` on these nodes depends on the devices in use: no node without a GPU does."""
    return any(_no_gpu(node) is None for node in nodes)


def choose_hardware(
    spec: VLMServiceSpec,
    needed: int,
    nodes: tuple[NodeFacts, ...],
    in_use: Mapping[str, int],
    rank: Callable[[GpuFacts, str], tuple[Any, ...]],
) -> Choice:
    """The class of nodes that the plan is made for.

    ``needed``: devices of each pod. ``in_use``: devices that pods request, by node. ``rank`` is how well a GPU beside
    processors of an architecture suits (smaller is better: fits, has a profile); then most free devices, then the product's
    name, so that the order of nodes is irrelevant.
    """
    written = spec.template.get("spec")
    pod = written if isinstance(written, Mapping) else {}
    passed: list[PassedOver] = []
    usable: list[NodeFacts] = []
    never: list[tuple[FindingReason, str]] = []  # (reason, sentence) of what can never work
    for node in sorted(nodes, key=attrgetter("name")):
        why = _no_gpu(node) or refusal(node, pod) or _not_requested(spec, node)
        if why is None and node.gpu is not None:
            impossible = _impossible(node.gpu, needed)
            if impossible is None:
                usable.append(_as_described(node, spec.hardware))
                continue
            never.append(impossible)
            why = impossible[1]
        passed.append(_passed(node, why or "has no GPU"))
    classes = hardware_classes(usable, in_use)
    if not classes:
        return replace(_none(spec, tuple(passed), never), avoid_labels=_ruled_out(spec, nodes))
    # Ranking resolves the settings for each class.
    best = (
        min(
            classes,
            key=lambda c: (
                *rank(c.gpu, c.nodes[0].cpu_architecture),
                c.gpu.source == "spec",
                -c.free,
                str(c.gpu.product),
                c.nodes[0].name,
            ),
        )
        if classes[1:]
        else classes[0]
    )
    best = held_to_architecture(best, classes)
    for other in classes:
        if other.nodes is not best.nodes:
            why_not = difference(other, best)
            passed += [_passed(n, why_not) for n in other.nodes]
    in_order = tuple(sorted(passed, key=attrgetter("node")))
    return Choice(best, in_order, tuple(_findings(spec, best, needed)), best.gpu.source)


def _findings(spec: VLMServiceSpec, best: HardwareClass, needed: int) -> Iterator[Finding]:
    """What a person should know about the nodes that were chosen."""
    yield from (_ambiguous(n) for n in best.nodes if n.gpu is not None and n.gpu.ambiguous)
    count = spec.multinode.node_count
    if len(best.nodes) < count:
        yield warning(
            FindingReason.TOO_FEW_NODES,
            f"one replica takes {count} nodes with {needed} devices each, and {len(best.nodes)} such nodes exist, so the pods "
            "wait for more; lower multinode.nodeCount or add nodes",
            "spec.multinode.nodeCount",
        )
    elif (sick := _sick(best, needed)) is not None:
        yield sick
    elif best.free < needed * count:
        yield info(
            FindingReason.DEVICES_IN_USE,
            f"{best.free} devices are free on these nodes now and one replica takes {needed * count}: the pods wait; stop other "
            "pods, or let an autoscaler add a node",
            "spec.hardware",
        )
    if best.gpu.inferred:
        yield info(
            FindingReason.HARDWARE_INFERRED,
            f"{best.gpu.inferred}: such machines have {named(best.gpu)} and {memory_of(best.gpu)}; install GPU feature "
            "discovery to be sure, also about how GPUs are shared",
            "spec.hardware",
        )
    if best.gpu.source in UNLABELLED and best.gpu.compute_capability is None:
        yield warning(
            FindingReason.HARDWARE_UNKNOWN,
            "nodes offer GPUs but no label describes them, so the engine's defaults are used: install GPU feature discovery, or "
            "set spec.hardware.computeCapability and minMemoryMiB",
            "spec.hardware",
        )


def _sick(best: HardwareClass, needed: int) -> Finding | None:
    """Devices that the device plugin has taken away for their health; nodes that the pods cannot run on without come first."""
    sick = [(node.name, node.gpu) for node in best.nodes if node.gpu is not None and node.gpu.unhealthy]
    if not sick:
        return None
    name, gpu = min(sick, key=lambda each: each[1].devices >= needed)
    more = f" (and devices of {len(sick) - 1} other nodes)" if sick[1:] else ""
    wait = f"The pod needs {needed}, so pods wait until they are healthy, or for another node" * (
        best.gpu.devices < needed
    )
    return warning(
        FindingReason.DEVICES_UNHEALTHY,
        f"{gpu.unhealthy} of {gpu.present} devices of node {name} are not healthy{more}: see the device plugin's log and the "
        f"kernel's Xid messages on this node. {wait or 'Pods use the others'}",
        "spec.hardware",
    )


def _passed(node: NodeFacts, reason: str) -> PassedOver:
    # Not validated: there may be thousands of nodes, and both are texts.
    return PassedOver.model_construct(node=node.name, reason=reason)


def _no_gpu(node: NodeFacts) -> str | None:
    if node.unusable:
        return node.unusable
    if node.gpu is None or node.gpu.allocatable < 1:
        return "has no GPU that pods can request"
    return None


def _as_described(node: NodeFacts, request: Hardware) -> NodeFacts:
    """The node, with the GPU that spec.hardware describes if no label does. The runtime compares it with the real one."""
    gpu = node.gpu
    if gpu is None or gpu.source != "unknown" or not (request.compute_capability or request.min_memory_mib):
        return node
    described = replace(gpu, source="spec", compute_capability=_capability(request), memory_mib=request.min_memory_mib)
    return replace(node, gpu=described)


def _capability(request: Hardware) -> ComputeCapability | None:
    return ComputeCapability.parse(request.compute_capability) if request.compute_capability else None


def _not_requested(spec: VLMServiceSpec, node: NodeFacts) -> str | None:
    request, gpu = spec.hardware, node.gpu
    assert gpu is not None
    if (
        request.compute_capability
        and gpu.compute_capability
        and str(gpu.compute_capability) != request.compute_capability
    ):
        return f"has compute capability {gpu.compute_capability}, and hardware.computeCapability is {request.compute_capability}"
    if request.min_memory_mib and gpu.memory_mib is not None and gpu.memory_mib < request.min_memory_mib:
        return f"has {gpu.memory_mib} MiB a device, and hardware.minMemoryMiB is {request.min_memory_mib}"
    if request.products and gpu.product not in request.products:
        return f"has {gpu.product or 'an unlabelled product'}, which is not in hardware.products"
    return None


def _ruled_out(spec: VLMServiceSpec, nodes: tuple[NodeFacts, ...]) -> dict[str, tuple[str, ...]]:
    """Label -> values of the nodes with other GPUs than requested, including nodes that are cordoned or not ready.

    By product if that is labelled: future nodes without any label, as autoscalers imagine them, stay possible.
    """
    found: dict[str, set[str]] = {}
    for node in nodes:
        if node.gpu is not None and _not_requested(spec, node):
            key, value = next(iter(node.gpu.match_labels.items()), ("kubernetes.io/hostname", node.name))
            found.setdefault(key, set()).add(value)
    return {key: tuple(sorted(values)) for key, values in sorted(found.items())}


def _impossible(gpu: GpuFacts, needed: int) -> tuple[FindingReason, str] | None:
    """(reason, sentence) for what can never work on such a node; None if it can."""
    if needed > 1 and gpu.sharing is Sharing.MIG:
        return FindingReason.TENSOR_PARALLEL_OVER_MIG, (
            f"has MIG slices, which cannot be joined, and the pod needs {needed} devices: "
            "set parallelism to 1 or turn MIG off"
        )
    if needed > 1 and gpu.sharing in (Sharing.TIME_SLICING, Sharing.MPS) and needed > gpu.present:
        return FindingReason.SHARES_ARE_NOT_DEVICES, (
            f"has {gpu.present} physical GPU{'s' * (gpu.present != 1)} shared by {gpu.sharing.value}, "
            f"and the pod needs {needed}, but shares of one GPU are one GPU: lower parallelism or turn sharing off"
        )
    if needed > 1 and gpu.sharing in (Sharing.TIME_SLICING, Sharing.MPS):
        return FindingReason.SHARES_ARE_NOT_DEVICES, (
            f"shares its GPUs by {gpu.sharing.value}, so a pod that requests {needed} may get the same physical GPU twice: "
            "set parallelism to 1 or turn sharing off"
        )
    if gpu.devices and needed > gpu.present:
        return FindingReason.TOO_MANY_DEVICES, (
            f"has {gpu.present} device{'s' * (gpu.present != 1)} and the pod needs {needed}: "
            "lower parallelism, or spread one replica over more nodes (multinode.nodeCount)"
        )
    return None


def _ambiguous(node: NodeFacts) -> Finding:
    assert node.gpu is not None
    return warning(
        FindingReason.AMBIGUOUS_LABELS,
        f"node {node.name}: {node.gpu.ambiguous}; correct the labels, keep one GPU model per node, or select nodes in "
        "spec.template",
        "spec.template",
    )


def _none(spec: VLMServiceSpec, passed: tuple[PassedOver, ...], never: list[tuple[FindingReason, str]]) -> Choice:
    if never:
        reason, sentence = never[0]
        node = next((p.node for p in passed if p.reason == sentence), "")
        message = f"no node can ever run this: node {node} {sentence}"
        return Choice(None, passed, (error(reason, message, "spec.parallelism"),))
    request, described = spec.hardware, None
    if request.compute_capability or request.min_memory_mib:
        product = request.products[0] if len(request.products) == 1 else None
        described = GpuFacts("spec", product, _capability(request), request.min_memory_mib)
    basis = "the GPU that spec.hardware describes" if described else "the engine's own defaults"
    message = (
        f"no node has a GPU that this service may use. Requested: {_requested(request)}; available: {_available(passed)}. The "
        f"plan uses {basis}, and the pods wait for a node: check node labels and taints, or let an autoscaler add a node"
    )
    finding = warning(FindingReason.NO_MATCHING_NODES, message, "spec.hardware")
    return Choice(None, passed, (finding,), "spec" if described else "unknown", described)


def _requested(request: Hardware) -> str:
    """``spec.hardware`` in words."""
    parts = [
        " or ".join(request.products),
        f"compute capability {request.compute_capability}" if request.compute_capability else "",
        f"at least {request.min_memory_mib:,} MiB" if request.min_memory_mib else "",
    ]
    return ", ".join(part for part in parts if part) or f"any {request.resource_name}"


def _available(passed: tuple[PassedOver, ...]) -> str:
    """Why nodes were passed over, most nodes first."""
    reasons = Counter(p.reason for p in passed).most_common()
    shown = [f"{count} node{'s' * (count > 1)} that {reason}" for reason, count in reasons[:SHOWN_REASONS]]
    others = sum(count for _, count in reasons[SHOWN_REASONS:])
    return ", ".join(shown + ([f"{others} others"] if others else [])) or "no nodes"
