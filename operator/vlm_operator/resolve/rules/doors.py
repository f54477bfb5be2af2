"""What clients can make the engine do that is no answer: its control paths, and URLs that it fetches for them."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Finding, Setting, Severity, Source
from vlm_operator import egress
from vlm_operator.resolve.context import Context, Declared, applied, left

# Our entry point in sglang.srt.plugins.
GUARD = "vlm_serving"
_DOMAINS = "allowed_media_domains"
_DOMAINS_PATH = "spec.security.allowedMediaDomains"
_ENFORCED = "if the cluster's network plugin enforces such policies (Calico and Cilium do, the plain bridge does not)"


def control_paths(context: Context, declared: Declared) -> Iterator[Finding]:
    """A finding where clients can reach paths that flush, pause or profile the engine."""
    if declared.value("enable_http2"):
        why = "enable_http2 serves without the plugin that closes the engine's control paths"
        step, path = "remove it", context.choices.settings["enable_http2"].path
    elif (allowed := _allowed_plugins(context)) is not None:
        why = f"SGLANG_PLUGINS does not list {GUARD}, the plugin that closes the engine's control paths"
        step, path = f"add {GUARD} to it, or remove it", allowed
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


def _allowed_plugins(context: Context) -> str | None:
    """Where SGLANG_PLUGINS, an allow-list, keeps our plugin out; None where it does not."""
    choice = context.choices.settings.get("SGLANG_PLUGINS")
    if choice is not None:
        names = [name.strip() for name in str(choice.value).split(",") if name.strip()]
        return choice.path if names and GUARD not in names else None
    return "spec.engine.env" if "SGLANG_PLUGINS" in context.choices.referenced_env else None


def media_domains(context: Context, declared: Declared) -> Iterator[Setting]:
    """Hosts from which images may be fetched. The engine compares the exact host, also of every redirect (0.5.18)."""
    domains, rule = context.spec.security.allowed_media_domains, "user.media_domains"
    if not domains:
        return
    if context.knows(_DOMAINS):
        yield applied(_DOMAINS, list(domains), Source.USER, rule, f"written in {_DOMAINS_PATH}")
    else:
        yield left(_DOMAINS, rule, f"{context.engine_name()} has no such flag")


def media_urls(context: Context, declared: Declared) -> Iterator[Finding]:
    """What is left open to URLs in requests. Without its flag the engine fetches from every host that it reaches."""
    if _DOMAINS in declared:
        return
    domains = context.spec.security.allowed_media_domains
    cannot = f"{context.engine_name()} cannot limit media domains: use 0.5.18 or later and say spec.engine.version"
    if why := _no_policy(context):
        step = cannot if domains else f"list the hosts of your images in {_DOMAINS_PATH}"
        yield Finding(
            severity=Severity.WARNING,
            reason="MediaUrlsOpen",
            message="requests may name images on every host that the pods reach, also inside the cluster and at the "
            f"cloud's metadata service, since {why}; {step}, or leave the NetworkPolicy to the operator",
            path=_DOMAINS_PATH,
        )
    elif domains:
        yield Finding(
            severity=Severity.WARNING,
            reason="MediaDomainsNotEnforced",
            message=f"{cannot}; until then images come from every public host, and the service's NetworkPolicy closes "
            f"all other addresses, {_ENFORCED}",
            path=_DOMAINS_PATH,
        )
    else:
        yield Finding(
            severity=Severity.INFO,
            reason="MediaFromPublicHosts",
            message="requests may name images on every public host; the service's NetworkPolicy closes addresses "
            f"inside the cluster and the cloud's metadata service, {_ENFORCED}; to allow single hosts only, list them in "
            f"{_DOMAINS_PATH}",
            path=_DOMAINS_PATH,
        )


def ways_out(context: Context, declared: Declared) -> Iterator[Finding]:
    """What the NetworkPolicy opens for proxies and mirrors that the spec names, and what it cannot open."""
    if _no_policy(context):
        return
    for way in egress.ways_out(context.choices.env):
        if egress.address_block(way.host) or egress.service_namespace(way.host):
            continue
        proxy = "a proxy fetches what requests name, so it has to refuse addresses inside the cluster itself; "
        yield Finding(
            severity=Severity.INFO,
            reason="EgressOpened",
            message=f"{way.variable} names {way.host}, and a NetworkPolicy knows no names: pods may reach port {way.port} "
            "of every address but the clouds' metadata services; "
            + (proxy if way.variable.lower().endswith("_proxy") else "")
            + f"give its IP address or Service name (NAME.NAMESPACE.svc) to open no more, or list {_DOMAINS_PATH}",
            path="spec.engine.env",
        )
    unknown = {*egress.unreadable(context.choices.env), *context.choices.referenced_env} & {*egress.VARIABLES}
    for name in sorted(unknown):
        yield Finding(
            severity=Severity.WARNING,
            reason="EgressNotOpened",
            message=f"the operator cannot read which host {name} names, so the NetworkPolicy does not open the way there; "
            "write it as a plain value, or open it in the chart's value services.networkPolicy.extraEgress",
            path="spec.engine.env",
        )


def _no_policy(context: Context) -> str:
    """Why no NetworkPolicy holds the pods; empty where one does."""
    if not context.network_policies:
        return "NetworkPolicies are switched off for this operator (the chart's services.networkPolicy.enabled)"
    if not context.spec.security.network_policy:
        return "spec.security.networkPolicy is false"
    if (context.spec.template.get("spec") or {}).get("hostNetwork"):
        return "NetworkPolicies do not hold pods in the host's network (hostNetwork in spec.template)"
    return ""
