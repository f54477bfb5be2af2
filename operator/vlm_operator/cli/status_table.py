"""A VLMService's status as tables: conditions, start-up, pods and the next step."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from vlm_api import reasons
from vlm_api.names import MAIN_CONTAINER
from vlm_api.plan import Finding
from vlm_api.reasons import Conditions
from vlm_api.report import Phase
from vlm_api.status import (
    PULLING,
    Benchmark,
    Condition,
    ConditionStatus,
    PoolStatus,
    Startup,
    VLMService,
    VLMServiceStatus,
)
from vlm_operator.cli.console import INDENT, bar, columns, heading, indented, pairs
from vlm_operator.cli.plan_table import print_findings
from vlm_operator.documents import Document

# Conditions that are neither good nor bad when True.
NEUTRAL: Final = (Conditions.PROGRESSING, Conditions.HARDWARE_DRIFT)
# Reasons of Progressing that leave nothing to wait for.
SETTLED: Final = (reasons.COMPLETE, reasons.NOT_STARTED)
# Reasons that end by themselves.
UNDER_WAY: Final = (reasons.ROLLING_OUT, reasons.STARTING, reasons.INSPECTING)
BAR_WIDTH: Final = 40
MIN_BAR_WIDTH: Final = 10
PHASES: Final = (PULLING, *(phase.value for phase in list(Phase)[: list(Phase).index(Phase.READY) + 1]))

# What happens in each phase.
PHASE_TEXTS: Final = {
    PULLING: "pulling images, mounting volumes",
    Phase.CHECKING_HARDWARE.value: "comparing the GPUs with the plan",
    Phase.STARTING.value: "importing the engine, reading its configuration",
    Phase.LOADING_WEIGHTS.value: "downloading and loading the weights",
    Phase.CAPTURING_GRAPHS.value: "capturing CUDA graphs",
    Phase.WARMING_UP.value: "the engine runs its own first request",
    Phase.FIRST_IMAGE.value: "the runtime sends a request with an image",
}


def print_status(
    console: Console, service: VLMService, status: VLMServiceStatus | None, pods: Sequence[Document], now: datetime
) -> None:
    """Prints all that `kubectl vlm status` shows. ``now`` is the end of every age."""
    ready = _condition(status, Conditions.READY)
    console.print(Text(service.name, style="bold") + Text(f" in {service.namespace}") + _verdict(ready))
    if status is None:
        console.print("The operator has not processed this service yet. Check that it runs: kubectl get pods -A")
        return
    _print_header(console, service, status, now)
    _print_pools(console, status.pools)
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
            console, [*_traffic_findings(status), *(f for f in status.plan.findings if f.severity.value != "Info")]
        )
    console.print(heading("Next step"))
    console.print(indented(next_step(service, status)))


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
        return Text("  not processed yet", style="yellow")
    return Text(f"  {ready.reason}", style="bold green" if ready.status is ConditionStatus.TRUE else "bold yellow")


def _style(condition: Condition) -> str:
    if condition.type in NEUTRAL:
        return ""
    return {ConditionStatus.TRUE: "green", ConditionStatus.FALSE: "bold red"}.get(condition.status, "yellow")


def _print_header(console: Console, service: VLMService, status: VLMServiceStatus, now: datetime) -> None:
    if service.spec.pools:
        desired = f"{status.desired_replicas or 0} desired in {len(service.spec.pools)} pools"
    elif service.spec.scaling is not None:
        desired = f"{service.spec.scaling.min_replicas} to {service.spec.scaling.max_replicas} desired"
    else:
        desired = f"{1 if service.spec.replicas is None else service.spec.replicas} desired"
    if service.spec.suspend:
        desired += ", suspended (no pods)"
    counts = f"{status.ready_replicas or 0} ready, {status.updated_replicas or 0} up to date, {desired}"
    rows = [("Model", service.spec.model.uri), ("Replicas", counts)]
    if status.plan is not None and status.plan.hash:
        rows.append(("Plan", status.plan.hash))
    if status.url:
        rows.append(("URL", status.url))
    if status.benchmark is not None:
        rows.append(("Measured", _measured(status.benchmark, status.plan.hash if status.plan else "", now)))
    if _is_outdated(service, status):
        rows.append(("Note", "the spec has changed; the operator has not processed the change yet"))
    console.print(pairs([*rows]))


def _print_pools(console: Console, pools: Sequence[PoolStatus]) -> None:
    if not pools:
        return
    console.print(heading("Pools"))
    table = columns("NAME", "GPU", "DESIRED", "READY", "UP-TO-DATE", "PLAN", "STATUS")
    for pool in pools:
        numbers = (pool.desired_replicas, pool.ready_replicas, pool.updated_replicas)
        counts = [str(number if number is not None else 0) for number in numbers]
        table.add_row(INDENT + pool.name, pool.product or "", *counts, pool.plan, pool.reason)
    console.print(table)


def _measured(result: Benchmark, plan_hash: str, now: datetime) -> str:
    """The last benchmark, with its plan if that is not the current one."""
    ttft = result.ttft_p50_milliseconds
    first = f", median TTFT {ttft:,.0f} ms" if ttft is not None else ""
    failed = f", {result.failures} of {result.requests} requests failed" if result.failures else ""
    plan = "" if result.plan_hash == plan_hash else f", with plan {result.plan_hash}"
    rate = f"{result.requests_per_second:,.2f} requests/s at concurrency {result.concurrency}"
    return f"{rate}{first}{failed}, {age(result.time, now)} ago{plan}"


def _traffic_findings(status: VLMServiceStatus) -> list[Finding]:
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
    """One word for a pod, as kubectl chooses it: the container's waiting reason, else the phase."""
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    now = main.get("state") or {}
    for kind in ("waiting", "terminated"):
        if reason := (now.get(kind) or {}).get("reason"):
            return str(reason)
    return str(state.get("reason") or state.get("phase") or "Unknown")


def next_step(service: VLMService, status: VLMServiceStatus) -> str:
    """What a person should do: the message of what keeps the service from being ready, complete or as planned."""
    if _is_outdated(service, status):
        return (
            "wait a few seconds: the operator has not processed the last change yet, so the conditions are of the spec before "
            "it. If that lasts, check that the operator runs: kubectl get pods -A"
        )
    ready, progressing = _condition(status, Conditions.READY), _condition(status, Conditions.PROGRESSING)
    if ready is None:
        return "wait until the operator has processed the service"
    if ready.status is not ConditionStatus.TRUE:
        return _waiting(ready)
    short = (status.ready_replicas or 0) < (status.desired_replicas or 0)
    if progressing is not None and (short or progressing.reason not in SETTLED):
        return f"{_waiting(progressing).rstrip('.')}. Requests are answered meanwhile"
    drift, scaling = _condition(status, Conditions.HARDWARE_DRIFT), _condition(status, Conditions.SCALING_ACTIVE)
    if drift is not None and drift.status is ConditionStatus.TRUE:
        return drift.message
    if scaling is not None and scaling.status is ConditionStatus.FALSE:
        return scaling.message
    return f"nothing: the service is ready. See its settings with `kubectl vlm explain {service.name}`"


def _waiting(condition: Condition) -> str:
    """Its message, which has no step of its own if all goes well."""
    return f"wait: {condition.message}" if condition.reason in UNDER_WAY else condition.message


def _is_outdated(service: VLMService, status: VLMServiceStatus) -> bool:
    """Whether the status is of an older spec."""
    observed, generation = status.observed_generation, service.metadata.get("generation") or 0
    return observed is not None and generation > observed


def print_startup(console: Console, startup: Startup, pods: Sequence[Document], now: datetime) -> None:
    """Prints the start of the slowest pod. If it is among ``pods``, its age is exact."""
    pod = next((p for p in pods if p["metadata"]["name"] == startup.pod), None)
    elapsed = _elapsed(startup, pod, now)
    console.print(heading(f"Start of the slowest pod{f', {startup.pod}' if startup.pod else ''}"))
    _print_phases(console, startup, elapsed)
    share = elapsed / startup.budget_seconds if startup.budget_seconds else 0.0
    before, after = f"{INDENT}{startup.phase}  ", f"  {elapsed} s of at most {startup.budget_seconds} s"
    step = f"  step {PHASES.index(startup.phase) + 1} of {len(PHASES)}" if startup.phase in PHASES else ""
    room = console.width - len(before + after + step)
    if room < MIN_BAR_WIDTH:
        room, step = room + len(step), ""
    graph = bar(console, share, min(BAR_WIDTH, max(room, MIN_BAR_WIDTH)))
    console.print(Text(before, style="bold") + graph + Text(after) + Text(step, style="dim"))
    if startup.budget_reason:
        console.print(indented(Text(startup.budget_reason, style="dim")))


def _print_phases(console: Console, startup: Startup, elapsed: int) -> None:
    """The finished phases and the current one, with their seconds."""
    if not startup.phases:
        return
    table = columns("PHASE", "TIME", "WHAT")
    for phase in startup.phases:
        table.add_row(INDENT + phase.phase, f"{phase.seconds} s", PHASE_TEXTS.get(phase.phase, ""), style="dim")
    # Pulling happens before the runtime starts, so it is not part of the elapsed time.
    before = sum(p.seconds for p in startup.phases if p.phase != PULLING)
    table.add_row(INDENT + startup.phase, f"{max(elapsed - before, 0)} s so far", PHASE_TEXTS.get(startup.phase, ""))
    console.print(table)


def _elapsed(startup: Startup, pod: Document | None, now: datetime) -> int:
    """Seconds of the start so far. The status alone is up to 15 s old."""
    since = _started_at(startup.phase, pod.get("status") or {}) if pod is not None else None
    if since is None:
        return startup.elapsed_seconds
    return max(int((now - datetime.fromisoformat(since.replace("Z", "+00:00"))).total_seconds()), 0)


def _started_at(phase: str, status: Document) -> str | None:
    if phase == PULLING:
        scheduled: dict[str, Any] = next(
            (c for c in status.get("conditions") or [] if c.get("type") == "PodScheduled"), {}
        )
        return scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None
    main: dict[str, Any] = next(
        (c for c in status.get("containerStatuses") or [] if c.get("name") == MAIN_CONTAINER), {}
    )
    return ((main.get("state") or {}).get("running") or {}).get("startedAt")
