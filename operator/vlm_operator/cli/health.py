"""A VLMService's health for a person: conditions, how far a start is, pods, and the next step for whatever is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from vlm_api.names import MAIN_CONTAINER
from vlm_api.plan import Finding
from vlm_api.reasons import Conditions
from vlm_api.status import Benchmark, Condition, ConditionStatus, VLMService, VLMServiceStatus
from vlm_operator.cli.console import INDENT, columns, heading, pairs
from vlm_operator.cli.start import print_startup
from vlm_operator.cli.table import print_findings
from vlm_operator.documents import Document

# These only tell: neither value is good or bad.
NEUTRAL: Final = (Conditions.PROGRESSING, Conditions.HARDWARE_DRIFT)


def print_status(
    console: Console, service: VLMService, status: VLMServiceStatus | None, pods: Sequence[Document], now: datetime
) -> None:
    """Everything that `kubectl vlm status` shows. ``now`` is for ages."""
    ready = _condition(status, Conditions.READY)
    console.print(Text(service.name, style="bold") + Text(f" in {service.namespace}") + _verdict(ready))
    if status is None:
        console.print(
            "The operator has not looked at it yet. Next: see whether the operator runs (kubectl get pods -A)."
        )
        return
    _print_header(console, service, status, now)
    if status.startup is not None:
        print_startup(console, status.startup, pods, now)
    if status.conditions:
        console.print(heading("Conditions"))
        table = columns("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE")
        for each in status.conditions:
            since = age(each.last_transition_time, now)
            table.add_row(
                INDENT + each.type, Text(each.status.value, style=_style(each)), each.reason, since, each.message
            )
        console.print(table)
    _print_pods(console, pods, now)
    if status.plan is not None:
        print_findings(
            console, [*_of_traffic(status), *(f for f in status.plan.findings if f.severity.value != "Info")]
        )
    _print_next(console, service, status)


def age(timestamp: str, now: datetime) -> str:
    """``5m`` since an RFC 3339 time, as kubectl writes ages."""
    seconds = int((now - datetime.fromisoformat(timestamp.replace("Z", "+00:00"))).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def _condition(status: VLMServiceStatus | None, name: str) -> Condition | None:
    return next((c for c in status.conditions if c.type == name), None) if status else None


def _verdict(ready: Condition | None) -> Text:
    if ready is None:
        return Text("  not looked at yet", style="yellow")
    return Text(f"  {ready.reason}", style="bold green" if ready.status is ConditionStatus.TRUE else "bold yellow")


def _style(condition: Condition) -> str:
    if condition.type in NEUTRAL:
        return ""
    return {ConditionStatus.TRUE: "green", ConditionStatus.FALSE: "bold red"}.get(condition.status, "yellow")


def _print_header(console: Console, service: VLMService, status: VLMServiceStatus, now: datetime) -> None:
    wanted = service.spec.replicas if service.spec.replicas is not None else 1
    if service.spec.scaling is not None:
        wanted_text = f"{service.spec.scaling.min_replicas} to {service.spec.scaling.max_replicas} wanted"
    else:
        wanted_text = f"{wanted} wanted"
    if service.spec.suspend:
        wanted_text += ", suspended: no pods"
    counts = f"{status.ready_replicas or 0} ready, {status.updated_replicas or 0} up to date, {wanted_text}"
    rows = [("Model", service.spec.model.uri), ("Replicas", counts)]
    if status.plan is not None and status.plan.hash:
        rows.append(("Plan", status.plan.hash))
    if status.url:
        rows.append(("URL", status.url))
    if status.benchmark is not None:
        rows.append(("Measured", _measured(status.benchmark, status.plan.hash if status.plan else "", now)))
    generation = service.metadata.get("generation")
    if status.observed_generation is not None and generation and generation > status.observed_generation:
        rows.append(("Note", "the spec has changed since: the operator has not looked at the change yet"))
    console.print(pairs([*rows]))


def _measured(found: Benchmark, plan_hash: str, now: datetime) -> str:
    """What a benchmark said last, and whether that was of the plan in force."""
    first = found.ttft_p50_milliseconds
    wait = f", first token after {first:,.0f} ms" if first is not None else ""
    failed = f", {found.failures} of {found.requests} requests failed" if found.failures else ""
    of = "" if found.plan_hash == plan_hash else f", with the plan {found.plan_hash}"
    rate = f"{found.requests_per_second:,.2f} requests/s at {found.concurrency} at once"
    return f"{rate}{wait}{failed}, {age(found.time, now)} ago{of}"


def _of_traffic(status: VLMServiceStatus) -> list[Finding]:
    images = status.effective.images if status.effective is not None else None
    return [images.finding] if images is not None and images.finding is not None else []


def _print_pods(console: Console, pods: Sequence[Document], now: datetime) -> None:
    if not pods:
        return
    console.print(heading("Pods"))
    table = columns("NAME", "READY", "STATUS", "RESTARTS", "AGE", "NODE", last_wraps=False)
    for pod in pods:
        metadata, state = pod["metadata"], pod.get("status") or {}
        containers = state.get("containerStatuses") or []
        main: Document = next((c for c in containers if c.get("name") == MAIN_CONTAINER), {})
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in state.get("conditions") or [])
        created = metadata.get("creationTimestamp")
        table.add_row(
            INDENT + metadata["name"],
            Text("yes", style="green") if ready else Text("no", style="yellow"),
            _pod_state(metadata, state, main),
            str(main.get("restartCount") or 0),
            age(created, now) if created else "-",
            (pod.get("spec") or {}).get("nodeName") or "-",
        )
    console.print(table)


def _pod_state(metadata: Document, state: Document, main: Document) -> str:
    """One word for a pod, as kubectl chooses it: what holds it up, else its phase."""
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    now = main.get("state") or {}
    for kind in ("waiting", "terminated"):
        if reason := (now.get(kind) or {}).get("reason"):
            return str(reason)
    return str(state.get("reason") or state.get("phase") or "Unknown")


def _print_next(console: Console, service: VLMService, status: VLMServiceStatus) -> None:
    """The message of what holds the service back most; conditions come in the order in which they build on each other."""
    ready = _condition(status, Conditions.READY)
    console.print(heading("Next"))
    if ready is None:
        console.print(f"{INDENT}wait for the operator's first look")
    elif ready.status is ConditionStatus.TRUE:
        console.print(f"{INDENT}nothing: it serves. `kubectl vlm explain {service.name}` shows its settings")
    else:
        for line in Text(ready.message).wrap(console, max(console.width - 2, 20)):
            console.print(Text(INDENT) + line)
