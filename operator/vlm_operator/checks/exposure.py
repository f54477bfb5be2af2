"""What clients can make the engine do beside answering: its control paths, and URLs that it fetches for them."""

from collections.abc import Iterator
from typing import Final

from vlm_api.plan import Finding, info, warning
from vlm_api.reasons import FindingReason
from vlm_operator.checks.types import CheckInput
from vlm_operator.errors import InvalidInput
from vlm_operator.facts import egress as hosts
from vlm_operator.sglang.context import Context, Declared
from vlm_operator.sglang.rules.user import MEDIA_DOMAINS

# Our entry point in sglang.srt.plugins.
GUARD: Final = "vlm_serving"
DOMAINS_PATH: Final = "spec.security.allowedMediaDomains"
# They put Granian, or a server in Rust, in Uvicorn's place.
_OTHER_SERVERS: Final = ("enable_http2", "SGLANG_RUST_SERVER")
LONGEST_HOST: Final = 253
_PATHS: Final = "(/flush_cache, /pause_generation, /start_profile and others)"
_TRUSTED: Final = "let only trusted clients reach port 8000 by a NetworkPolicy"
_ENFORCED: Final = (
    "if the cluster's network plugin enforces such policies (Calico and Cilium do, the plain bridge does not)"
)


def control_paths(plan: CheckInput) -> Iterator[Finding]:
    """Clients can reach paths that flush, pause or profile the engine."""
    context = plan.context
    if (other := _other_server(context)) is not None:
        name, path = other
        why = (
            f"{name} serves without the plugin that closes the engine's control paths, and refuses names of files and requests "
            "that are too large"
        )
        step = "remove it"
    elif (allowed := _allowed_plugins(context)) is not None:
        why = f"SGLANG_PLUGINS does not list {GUARD}, the plugin that closes the engine's control paths"
        step, path = f"add {GUARD} to it, or remove it", allowed
    elif not context.engine.has_plugins:
        why = f"{context.engine_name()} may not load plugins, so nothing closes its control paths"
        step, path = "use 0.5.12 or later and set spec.engine.version", "spec.engine.version"
    else:
        return
    yield warning(FindingReason.CONTROL_PATHS_OPEN, f"{why} {_PATHS}; {step}, or {_TRUSTED}", path)


def _other_server(context: Context) -> tuple[str, str] | None:
    """The setting that replaces the server in which the plugin is, and its field."""
    for name in _OTHER_SERVERS:
        if (choice := context.choices.settings.get(name)) is not None and choice.value:
            return name, choice.path
        if name in context.choices.referenced_env:
            return name, "spec.engine.env"
    return None


def _allowed_plugins(context: Context) -> str | None:
    """The field of SGLANG_PLUGINS, an allow-list, if it excludes our plugin."""
    choice = context.choices.settings.get("SGLANG_PLUGINS")
    if choice is not None:
        names = [name.strip() for name in str(choice.value).split(",") if name.strip()]
        return choice.path if names and GUARD not in names else None
    return "spec.engine.env" if "SGLANG_PLUGINS" in context.choices.referenced_env else None


def media_urls(plan: CheckInput) -> Iterator[Finding]:
    """Hosts that requests may name. Without its flag the engine fetches from every host that it reaches."""
    if MEDIA_DOMAINS in plan.declared:
        return
    domains = plan.context.spec.security.allowed_media_domains
    cannot = (
        f"{plan.context.engine_name()} cannot restrict media domains: use 0.5.18 or later and set spec.engine.version"
    )
    if why := _no_policy(plan):
        step = cannot if domains else f"list the hosts of your images in {DOMAINS_PATH}"
        yield warning(
            FindingReason.MEDIA_URLS_OPEN,
            "requests may name images on every host that the pods reach, including hosts inside the cluster and the cloud's "
            f"metadata service, since {why}; {step}, or leave the NetworkPolicy to the operator",
            DOMAINS_PATH,
        )
    elif domains:
        yield warning(
            FindingReason.MEDIA_DOMAINS_NOT_ENFORCED,
            f"{cannot}; until then images come from every public host, and the service's NetworkPolicy blocks all other "
            f"addresses, {_ENFORCED}",
            DOMAINS_PATH,
        )
    else:
        yield info(
            FindingReason.MEDIA_FROM_PUBLIC_HOSTS,
            "requests may name images on every public host; the service's NetworkPolicy blocks addresses inside the cluster "
            f"and the cloud's metadata service, {_ENFORCED}; to allow only some hosts, list them in {DOMAINS_PATH}",
            DOMAINS_PATH,
        )


def metadata_services(context: Context, declared: Declared) -> Iterator[InvalidInput]:
    """A host that serves the node's credentials, as a host of images or as a proxy."""
    says = "is a cloud's metadata service or link-local, which pods of a service never reach: remove it"
    for position, host in enumerate(context.spec.security.allowed_media_domains):
        if hosts.is_metadata(host):
            yield InvalidInput(f"{DOMAINS_PATH}[{position}]", f"{host} {says}")
    if (choice := context.choices.settings.get(MEDIA_DOMAINS)) is not None:
        for host in map(str, choice.value if isinstance(choice.value, list) else [choice.value]):
            if hosts.is_metadata(host):
                yield InvalidInput(choice.path, f"{host[:LONGEST_HOST]} {says}")
    for way in hosts.destinations(context.choices.env):
        if hosts.is_metadata(way.host):
            written = [v.name for v in context.spec.engine.env]
            path = f"spec.engine.env[{written.index(way.variable)}]" if way.variable in written else "spec.template"
            yield InvalidInput(path, f"{way.variable} names {way.host}, which {says}")


def media_inside(plan: CheckInput) -> Iterator[Finding]:
    """Hosts of images that are in the cluster, which every client may then fetch from."""
    closed = not _no_policy(plan)
    for position, host in enumerate(plan.context.spec.security.allowed_media_domains):
        if not hosts.is_inside(host):
            continue
        path = f"{DOMAINS_PATH}[{position}]"
        namespace = hosts.service_namespace(host)
        if closed and namespace is None and hosts.address_block(host) is None:
            yield warning(
                FindingReason.EGRESS_NOT_OPENED,
                f"{host} is a name inside the cluster, and the operator cannot tell what it leads to, so the NetworkPolicy does "
                "not allow it; write the full name of a Service (NAME.NAMESPACE.svc), or remove it",
                path,
            )
            continue
        where = f"every pod of the namespace {namespace}" if namespace else "this address"
        opened = f"the NetworkPolicy opens ports 80 and 443 of {where}; " if closed else ""
        yield warning(
            FindingReason.EGRESS_OPENED,
            f"{host} is inside the cluster or its network, and whoever sends requests can fetch from it; {opened}"
            "remove it, or allow only trusted clients and hosts that serve nothing but images",
            path,
        )


def egress(plan: CheckInput) -> Iterator[Finding]:
    """What the NetworkPolicy opens for proxies and mirrors in the spec, and what it cannot open."""
    if _no_policy(plan):
        return
    choices = plan.context.choices
    for way in hosts.destinations(choices.env):
        if hosts.address_block(way.host) or hosts.service_namespace(way.host):
            continue
        proxy = "a proxy fetches what requests name, so it must refuse addresses inside the cluster itself; "
        yield info(
            FindingReason.EGRESS_OPENED,
            f"{way.variable} names {way.host}, and a NetworkPolicy cannot name hosts, so pods may reach port {way.port} of "
            "every address except the clouds' metadata services; "
            + (proxy if way.variable.lower().endswith("_proxy") else "")
            + f"to open less, give its IP address or Service name (NAME.NAMESPACE.svc), or list {DOMAINS_PATH}",
            "spec.engine.env",
        )
    unknown = {*hosts.unreadable(choices.env), *choices.referenced_env} & {*hosts.VARIABLES}
    for name in sorted(unknown):
        yield warning(
            FindingReason.EGRESS_NOT_OPENED,
            f"the operator cannot read which host {name} names, so the NetworkPolicy does not allow it; "
            "write it as a plain value, or open it in the chart's value services.networkPolicy.extraEgress",
            "spec.engine.env",
        )


def _no_policy(plan: CheckInput) -> str:
    """Why no NetworkPolicy applies to the pods; empty if one does."""
    spec = plan.context.spec
    if not plan.cluster.network_policies:
        return "NetworkPolicies are disabled for this operator (the chart's services.networkPolicy.enabled)"
    if not spec.security.network_policy:
        return "spec.security.networkPolicy is false"
    if (spec.template.get("spec") or {}).get("hostNetwork"):
        return "NetworkPolicies do not apply to pods in the host's network (hostNetwork in spec.template)"
    return ""
