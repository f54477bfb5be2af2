"""A plan as a table: hardware, findings, settings with their reasons, and memory."""

from collections.abc import Mapping, Sequence
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
    RouterPlan,
    ServingPlan,
    Setting,
    Severity,
    Source,
)
from vlm_api.status import PlanStatus, VLMService
from vlm_operator.cli.console import (
    INDENT,
    bar,
    columns,
    format_mib,
    format_value,
    heading,
    indented,
    pairs,
    settings_table,
)

SEVERITY_STYLE: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
SOURCE_STYLE: Final = {
    Source.USER: "magenta",
    Source.WORKLOAD: "green",
    Source.PROFILE: "blue",
    Source.HARDWARE: "blue",
}
MAX_NODES_SHOWN: Final = 6
BAR_WIDTH: Final = 32
# Columns of a memory row without its bar: the longest name, MiB and percent.
MEMORY_ROW_WIDTH: Final = 40


@dataclass(frozen=True)
class InForce:
    """The running engine's values that differ from the plan."""

    different: Mapping[str, Any]
    """Values that differ from the planned or expected ones, by setting."""
    not_reported: frozenset[str] = frozenset()
    """Settings that the engine does not report."""


def print_plan(
    console: Console,
    service: VLMService,
    plan: ServingPlan | PlanStatus,
    in_force: InForce | None = None,
    pool: str | None = None,
) -> None:
    """Prints a plan. ``in_force`` adds a column with the values that the running engine reports, ``pool`` names one of several;
    ``service`` has that pool's spec."""
    of = f", pool {pool}" if pool is not None else ""
    console.print(Text(service.name, style="bold"), Text(f" in {service.namespace}{of}"), sep="", end="")
    console.print(Text(f"  plan {plan.hash}" if plan.hash else "  no plan", style="dim"))
    _print_header(console, service, plan.engine, plan.hardware, plan.resources)
    print_findings(console, [f for f in plan.findings if not f.is_usual])
    _print_settings(console, plan.settings, in_force)
    if plan.memory is not None:
        _print_memory(console, plan.memory, plan.hardware)


def print_router(console: Console, service: VLMService, router: RouterPlan) -> None:
    """Prints what the router of a service does."""
    console.print(Text(service.name, style="bold"), Text(f" in {service.namespace}, router"), sep="")
    console.print(pairs([("Engine", f"Envoy, {router.image}"), ("Replicas", str(router.replicas))]))
    print_findings(console, router.findings)
    _print_settings(console, router.settings, None)


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Prints findings by severity, errors first."""
    if not findings:
        return
    console.print(heading("Findings"))
    for finding in sorted(findings, key=lambda f: list(SEVERITY_STYLE).index(f.severity)):
        title = f"{finding.severity.value} {finding.reason}"
        field = f"({finding.path})" if finding.path else ""
        fits = len(INDENT + title + "  " + field) <= console.width
        console.print(
            Text(INDENT + title, style=SEVERITY_STYLE[finding.severity]),
            Text("  " + field if fits else "", style="dim"),
            sep="",
        )
        if field and not fits:
            console.print(indented(Text(field, style="dim"), 2))
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
        rows.append(("Engine", f"SGLang {engine.version or '(unknown version)'}, {engine.image}"))
    if hardware is not None:
        rows.append(("Hardware", _hardware(hardware)))
        if hardware.nodes:
            rows.append(("Nodes", _first(hardware.nodes)))
        if hardware.passed_over:
            rows.append(("Skipped", _first([f"{p.node} ({p.reason})" for p in hardware.passed_over], most=3)))
    rows.append(("Replicas", _replicas(service, resources)))
    console.print(pairs([*rows]))


def _hardware(hardware: PlanHardware) -> str:
    if hardware.device == "cpu":
        return "CPU"
    parts = [hardware.product or "unknown GPU"]
    if hardware.compute_capability:
        parts.append(f"{(hardware.architecture or '').capitalize()} {hardware.compute_capability}".strip())
    parts.append("unknown memory" if hardware.memory_mib is None else f"{format_mib(hardware.memory_mib)} each")
    if hardware.devices_per_node:
        parts.append(f"{hardware.devices_per_node} per node")
    if hardware.sharing.value != "none":
        parts.append(f"shared ({hardware.sharing.value})")
    source = "" if hardware.source == "unknown" else f" (source: {hardware.source})"
    return ", ".join(parts) + source


def _replicas(service: VLMService, resources: PlanResources | None) -> str:
    spec = service.spec
    if spec.scaling is not None:
        text = f"{spec.scaling.min_replicas} to {spec.scaling.max_replicas}, autoscaled"
    else:
        text = str(1 if spec.replicas is None else spec.replicas)
    if spec.suspend:
        text += ", suspended (no pods)"
    if resources is not None:
        devices = resources.devices_per_pod
        each = f"{devices} GPU{'s' if devices != 1 else ''}" if devices else "no GPU"
        disk = f" and {format_mib(resources.ephemeral_storage_mib)} of disk" if resources.ephemeral_storage_mib else ""
        pods = "1 pod" if resources.pods == 1 else f"{resources.pods} pods, each"
        text += f"; per replica {pods} with {each}{disk}"
    return text


def _first(items: Sequence[str], most: int = MAX_NODES_SHOWN) -> str:
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def _print_settings(console: Console, settings: Sequence[Setting], in_force: InForce | None) -> None:
    applied = [s for s in settings if s.applied]
    defaults = [s for s in settings if not s.applied]
    # Many settings share one measurement: print each once, as a footnote.
    evidence = list(dict.fromkeys(s.evidence for s in (*applied, *defaults) if s.evidence))
    if applied:
        console.print(heading("Settings"))
        column = ["IN FORCE"] if in_force is not None else []
        rows = [_applied(each, in_force, evidence) for each in applied]
        settings_table(console, ["SETTING", "VALUE", *column, "SOURCE", "REASON"], rows)
    if defaults:
        console.print(heading("Engine defaults"))
        left = [(each.name, _in_force(each, in_force), _reason(each, evidence)) for each in defaults]
        settings_table(console, ["SETTING", "VALUE", "REASON"], left)
    if evidence:
        console.print()
        for number, each in enumerate(evidence, 1):
            console.print(pairs([(f"[{number}]", Text(each, style="dim"))]))


def _applied(setting: Setting, in_force: InForce | None, evidence: list[str]) -> list[str | Text]:
    reported = [_in_force(setting, in_force)] if in_force is not None else []
    source = Text(setting.source.value, style=SOURCE_STYLE.get(setting.source, ""))
    return [setting.name, format_value(setting.value), *reported, source, _reason(setting, evidence)]


def _in_force(setting: Setting, in_force: InForce | None) -> Text:
    """The running engine's value: red if it differs from the plan, yellow if it differs from an expectation."""
    planned = format_value(setting.value if setting.applied else setting.expected)
    if in_force is None:
        return Text(planned)
    if setting.name in in_force.not_reported:
        return Text("not reported", style="dim")
    if setting.name not in in_force.different:
        return Text(planned)
    value = format_value(in_force.different[setting.name])
    if setting.applied:
        return Text(value, style="bold red")
    return Text(f"{value} (expected {planned})", style="yellow")


def _reason(setting: Setting, evidence: list[str]) -> Text:
    note = f" [{evidence.index(setting.evidence) + 1}]" if setting.evidence else ""
    return Text(setting.reason) + Text(note, style="dim")


def _print_memory(console: Console, memory: PlanMemory, hardware: PlanHardware | None) -> None:
    total = hardware.memory_mib if hardware else None
    parts = [
        ("weights", memory.weights_mib),
        ("feature pool", memory.feature_pool_mib),
        *([("embedding cache", memory.embedding_cache_mib)] if memory.embedding_cache_mib else []),
        ("reserved", memory.reserved_mib),
        ("KV cache", memory.kv_cache_mib),
    ]
    if any(value is not None for _, value in parts):
        console.print(heading("Memory per device" + (f", {format_mib(total)}" if total else "")))
        table = columns("", "", "", last_wraps=False)
        table.show_header = False
        table.columns[1].justify = "right"
        width = min(BAR_WIDTH, max(console.width - MEMORY_ROW_WIDTH, 0))
        for name, value in parts:
            share = value / total if value is not None and total else None
            percent = Text("" if share is None else f" {share:.0%}", style="bold red" if (share or 0) > 1 else "")
            graph = bar(console, share, width) + percent if share is not None else percent
            table.add_row(INDENT + name, format_mib(value) if value is not None else "-", graph)
        console.print(table)
    includes = "" if memory.host_memory_mib is None else ", /dev/shm included"
    rows = [("/dev/shm", format_mib(memory.shared_memory_mib))]
    rows.append(("request", format_mib(memory.host_memory_mib) + includes))
    if memory.image_bytes is not None:
        tokens = "" if memory.image_tokens is None else f", {memory.image_tokens:,} tokens"
        rows.insert(0, ("one image", f"{memory.image_bytes / 2**20:,.1f} MiB{tokens}"))
    if memory.video_bytes is not None:
        counts = f"{memory.video_frames or 0:,} frames, {memory.video_prompt_tokens or 0:,} tokens"
        rows.insert(-2, ("one video", f"{memory.video_bytes / 2**20:,.1f} MiB, {counts}"))
    console.print(heading("Memory per pod"))
    console.print(pairs([*rows]))
