"""A plan for a person: what, on which hardware, with which settings and why, what the memory goes to, what to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from vlm_api.plan import (
    Finding,
    PlanEngine,
    PlanHardware,
    PlanMemory,
    PlanResources,
    ServingPlan,
    Setting,
    Severity,
    Source,
)
from vlm_api.status import PlanStatus, VLMService
from vlm_operator.cli.console import INDENT, bar, columns, heading, indented, mib, pairs, settings_table, shown

SEVERITY_STYLE: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
SOURCE_STYLE: Final = {
    Source.USER: "magenta",
    Source.WORKLOAD: "green",
    Source.PROFILE: "blue",
    Source.HARDWARE: "blue",
}
MAX_NODES_SHOWN: Final = 6
BAR_WIDTH: Final = 32
# What a row of the memory's sums takes beside its bar: the longest name, MiB and percent.
SUMS_WIDTH: Final = 40


@dataclass(frozen=True)
class EngineSays:
    """What the running engine says, where it is not simply what was planned or expected."""

    instead: Mapping[str, Any]
    """Values that differ, by setting."""
    not_told: frozenset[str] = frozenset()
    """Settings of which it says nothing."""


def print_plan(
    console: Console,
    service: VLMService,
    plan: ServingPlan | PlanStatus,
    engine_says: EngineSays | None = None,
) -> None:
    """Everything about a plan. ``engine_says`` adds what the running engine uses."""
    console.print(Text(service.name, style="bold"), Text(f" in {service.namespace}"), sep="", end="")
    console.print(Text(f"  plan {plan.hash}" if plan.hash else "  no plan", style="dim"))
    _print_header(console, service, plan.engine, plan.hardware, plan.resources)
    _print_settings(console, plan.settings, engine_says)
    if plan.memory is not None:
        _print_memory(console, plan.memory, plan.hardware)
    print_findings(console, plan.findings)


def print_findings(console: Console, findings: list[Finding]) -> None:
    """What to look at, the worst last, where the eye is when the prompt comes back."""
    if not findings:
        return
    console.print(heading("What to know"))
    order = [Severity.INFO, Severity.WARNING, Severity.ERROR]
    for finding in sorted(findings, key=lambda f: order.index(f.severity)):
        style = SEVERITY_STYLE[finding.severity]
        title = f"{finding.severity.value} {finding.reason}"
        place = f"({finding.path})" if finding.path else ""
        together = len(INDENT + title + "  " + place) <= console.width
        console.print(Text(INDENT + title, style=style), Text("  " + place if together else "", style="dim"), sep="")
        if place and not together:
            console.print(indented(Text(place, style="dim"), 2))
        console.print(indented(finding.message, 2))


def _print_header(
    console: Console,
    service: VLMService,
    engine: PlanEngine | None,
    hardware: PlanHardware | None,
    resources: PlanResources | None,
) -> None:
    model = service.spec.model
    rows = [("Model", model.uri + (f" at {model.revision}" if model.revision else ""))]
    if engine is not None:
        rows.append(("Engine", f"SGLang {engine.version or 'of an unknown version'}, {engine.image}"))
    if hardware is not None:
        rows.append(("Hardware", _hardware(hardware)))
        if hardware.nodes:
            rows.append(("Nodes", _some([*hardware.nodes])))
        if hardware.passed_over:
            rows.append(("Passed over", _some([f"{p.node} ({p.reason})" for p in hardware.passed_over], most=3)))
    rows.append(("Replicas", _replicas(service, resources)))
    console.print(pairs([*rows]))


def _hardware(hardware: PlanHardware) -> str:
    if hardware.device == "cpu":
        return "CPU"
    capability = hardware.compute_capability
    kind = f"{(hardware.architecture or '').capitalize()} {capability}".strip() if capability else "unknown capability"
    parts = [hardware.product or "GPU of an unknown product", kind, mib(hardware.memory_mib) + " each"]
    if hardware.devices_per_node:
        parts.append(f"{hardware.devices_per_node} per node")
    if hardware.sharing.value != "none":
        parts.append(f"shared: {hardware.sharing.value}")
    return f"{', '.join(parts)} (said by {hardware.source})"


def _replicas(service: VLMService, resources: PlanResources | None) -> str:
    spec = service.spec
    if spec.scaling is not None:
        text = f"{spec.scaling.min_replicas} to {spec.scaling.max_replicas}, autoscaled"
    else:
        text = str(1 if spec.replicas is None else spec.replicas)
    if spec.suspend:
        text += ", suspended: no pods"
    if resources is not None:
        devices = f"{resources.devices_per_pod} GPU{'s' if resources.devices_per_pod != 1 else ''}"
        each = devices if resources.devices_per_pod else "no GPU"
        disk = f" and {mib(resources.ephemeral_storage_mib)} of disk" if resources.ephemeral_storage_mib else ""
        text += f", each {resources.pods} pod{'s' if resources.pods != 1 else ''} with {each}{disk}"
    return text


def _some(items: list[str], most: int = MAX_NODES_SHOWN) -> str:
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def _print_settings(console: Console, settings: list[Setting], engine_says: EngineSays | None) -> None:
    applied = [s for s in settings if s.applied]
    alone = [s for s in settings if not s.applied]
    # The same measurement stands behind many settings: it is named once, below them.
    evidence = list(dict.fromkeys(s.evidence for s in (*applied, *alone) if s.evidence))
    if applied:
        console.print(heading("Settings"))
        says = ["ENGINE SAYS"] if engine_says is not None else []
        rows = [_applied(each, engine_says, evidence) for each in applied]
        settings_table(console, ["SETTING", "VALUE", *says, "SOURCE", "WHY"], rows)
    if alone:
        console.print(heading("Left alone"))
        left = [(each.name, _says(each, engine_says), _why(each, evidence)) for each in alone]
        settings_table(console, ["SETTING", "ENGINE TAKES", "WHY"], left)
    if evidence:
        console.print()
        for number, each in enumerate(evidence, 1):
            console.print(pairs([(f"[{number}]", Text(each, style="dim"))]))


def _applied(setting: Setting, engine_says: EngineSays | None, evidence: list[str]) -> list[str | Text]:
    says = [_says(setting, engine_says)] if engine_says is not None else []
    source = Text(setting.source.value, style=SOURCE_STYLE.get(setting.source, ""))
    return [setting.name, shown(setting.value), *says, source, _why(setting, evidence)]


def _says(setting: Setting, engine_says: EngineSays | None) -> Text:
    """What the running engine uses: red where another value was planned, yellow where it was only expected."""
    planned = shown(setting.value if setting.applied else setting.expected)
    if engine_says is None:
        return Text(planned)
    if setting.name in engine_says.not_told:
        return Text("not told", style="dim")
    if setting.name not in engine_says.instead:
        return Text(planned)
    instead = shown(engine_says.instead[setting.name])
    if setting.applied:
        return Text(instead, style="bold red")
    return Text(f"{instead} (expected {planned})", style="yellow")


def _why(setting: Setting, evidence: list[str]) -> Text:
    note = f" [{evidence.index(setting.evidence) + 1}]" if setting.evidence else ""
    return Text(setting.reason) + Text(note, style="dim")


def _print_memory(console: Console, memory: PlanMemory, hardware: PlanHardware | None) -> None:
    total = hardware.memory_mib if hardware else None
    parts = [
        ("weights", memory.weights_mib),
        ("image features", memory.feature_pool_mib),
        *([("image embeddings", memory.embedding_cache_mib)] if memory.embedding_cache_mib else []),
        ("engine's reserve", memory.reserved_mib),
        ("KV cache", memory.kv_cache_mib),
    ]
    if any(value is not None for _, value in parts):
        console.print(heading("Memory of one device" + (f", {mib(total)}" if total else "")))
        table = columns("", "", "", last_wraps=False)
        table.show_header = False
        table.columns[1].justify = "right"
        width = min(BAR_WIDTH, max(console.width - SUMS_WIDTH, 0))
        for name, value in parts:
            share = value / total if value is not None and total else None
            percent = Text("" if share is None else f" {share:.0%}", style="bold red" if (share or 0) > 1 else "")
            graph = bar(console, share, width) + percent if share is not None else percent
            table.add_row(INDENT + name, mib(value) if value is not None else "-", graph)
        console.print(table)
    rows = [("/dev/shm", mib(memory.shared_memory_mib)), ("pod", mib(memory.host_memory_mib))]
    if memory.image_bytes is not None:
        tokens = "" if memory.image_tokens is None else f", {memory.image_tokens:,} tokens"
        rows.insert(0, ("one image", f"{memory.image_bytes / 2**20:,.1f} MiB{tokens}"))
    console.print(heading("Memory of the pod"))
    console.print(pairs([*rows]))
