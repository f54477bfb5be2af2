"""Whether the engine's control paths are closed to clients, which a plugin inside the engine does."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Finding, Severity
from vlm_operator.resolve.context import Context, Declared


def control_paths(context: Context, declared: Declared) -> Iterator[Finding]:
    """A finding where clients can reach paths that flush, pause or profile the engine."""
    if declared.value("enable_http2"):
        why = "enable_http2 serves without the plugin that closes the engine's control paths"
        step, path = "remove it", context.choices.settings["enable_http2"].path
    elif not context.engine.has_plugins:
        why = f"{context.engine_name()} may load no plugins, so nothing closes its control paths"
        step, path = "use 0.5.12 or later and say spec.engine.version", "spec.engine.version"
    else:
        return
    yield Finding(
        severity=Severity.WARNING,
        reason="ControlPathsOpen",
        message=f"{why} (/flush_cache, /pause_generation, /start_profile and others); {step}, "
        "or let only trusted clients reach port 8000 by a NetworkPolicy",
        path=path,
    )
