"""What a person should know of the release of SGLang that was chosen: its known faults, and where the guard is not loaded."""

from __future__ import annotations

from typing import Any

from vlm_api.plan import Finding, Severity
from vlm_operator.engines.catalogue import versions_with
from vlm_operator.engines.faults import Fault, faults
from vlm_operator.resolve.conditions import travels_by_cuda_ipc
from vlm_operator.resolve.context import Context, Declared

# With it, workers of --tokenizer-worker-num load the runtime's application; without it they serve the engine's bare one.
WORKERS_APPLICATION = "SGLANG_HTTP_SERVER_APP_PATH"


def release_findings(context: Context, declared: Declared) -> list[Finding]:
    """Faults that this plan can run into, with the next better release."""
    found = [f for f in faults(context.engine.version) if _shows(f, context, declared)]
    return [_fault(fault, context) for fault in found] + _unguarded_workers(context, declared)


def _shows(fault: Fault, context: Context, declared: Declared) -> bool:
    values: dict[str, Any] = {"transport": "cuda_ipc" if context.cuda and travels_by_cuda_ipc(declared) else "cpu"}
    return all(values.get(name, declared.value(name)) in wanted for name, wanted in fault.when.items())


def _fault(fault: Fault, context: Context) -> Finding:
    path = (
        "spec.engine.image" if context.spec.engine.image and not context.spec.engine.version else "spec.engine.version"
    )
    return Finding(
        severity=Severity.WARNING,
        reason="EngineFault",
        message=f"{context.engine_name()} {fault.reason}: use {fault.mended} or newer, {fault.step}",
        path=path,
    )


def _unguarded_workers(context: Context, declared: Declared) -> list[Finding]:
    workers = context.choices.settings.get("tokenizer_worker_num")
    if workers is None or int(workers.value) < 2 or not context.engine.has_plugins:
        return []
    if context.engine.has_variable(WORKERS_APPLICATION):
        return []
    since = versions_with(WORKERS_APPLICATION)[0]
    return [
        Finding(
            severity=Severity.WARNING,
            reason="ControlPathsOpen",
            message=f"{workers.value} tokenizer workers of {context.engine_name()} serve without the plugin that closes the "
            f"engine's control paths (/flush_cache, /pause_generation, /start_profile and others); use {since} or newer, "
            "one worker, or let only trusted clients reach port 8000 by a NetworkPolicy",
            path=workers.path,
        )
    ]
