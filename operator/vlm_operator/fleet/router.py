"""What the router of a service does, with reasons, like any setting. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vlm_api.limits import MIB, SLACK, request_limits
from vlm_api.names import ENGINE_PORT, ROUTER_METRICS_PORT, RUNTIME_PORT
from vlm_api.plan import Finding, RouterPlan, ServingPlan, Setting, Source, error
from vlm_api.reasons import FindingReason
from vlm_api.spec import Affinity, Reuse, Router, VLMServiceSpec
from vlm_operator.fleet.envoy import Backend, Routing
from vlm_operator.plan.request import PoolRequest

VERSION: Final = "1.39.1"
IMAGE: Final = f"envoyproxy/envoy:distroless-v{VERSION}"
# An Envoy without requests takes 30 to 80 MiB.
IDLE_MIB: Final = 128
# Envoy keeps weights of a hash ring below this.
MAX_WEIGHT: Final = 128


@dataclass(frozen=True)
class RoutedPool:
    """A pool that the router sends requests to."""

    request: PoolRequest
    plan: ServingPlan | None
    """None while it has none."""


def plan_router(router: Router, pools: Sequence[RoutedPool]) -> RouterPlan:
    """The router before these pools, at least one."""
    spec = pools[0].request.spec
    by_image, why = _affinity(router, spec.workload.images.reuse)
    weights, basis, shares = _weights(pools)
    limit = request_limits(spec.workload).body_bytes
    memory, sum_of = _memory(spec, pools, router.replicas, limit)
    seconds = spec.workload.max_request_seconds
    chosen = Source.USER if router.affinity is not Affinity.AUTO else Source.WORKLOAD
    settings = [
        _setting("affinity", (Affinity.IMAGE if by_image else Affinity.NONE).value, chosen, why),
        _setting("weights", weights, Source.USER if shares else Source.WORKLOAD, basis),
        _setting(
            "bodyMiB", limit // MIB, Source.WORKLOAD, "as the engines' own limit: a larger body is answered with 413"
        ),
        _setting(
            "maxRequestSeconds", seconds, Source.WORKLOAD, "workload.maxRequestSeconds; Envoy's own default is 15 s"
        ),
        _setting("memoryMiB", memory, Source.WORKLOAD, sum_of),
    ]
    if by_image:
        reason = "above this load an image goes to another engine, so that a hot one spreads"
        settings.insert(1, _setting("loadFactorPercent", router.load_factor_percent, Source.USER, reason))
    return RouterPlan(
        image=router.image or IMAGE, replicas=router.replicas, settings=settings, findings=_findings(router, pools)
    )


def routing_of(plan: RouterPlan, pools: Sequence[RoutedPool]) -> Routing:
    """The plan as Envoy is configured by it."""
    values = {setting.name: setting.value for setting in plan.settings}
    return Routing(
        backends=[
            Backend(pool.request.pool, _host(pool.request), values["weights"][pool.request.pool]) for pool in pools
        ],
        by_image=values["affinity"] == Affinity.IMAGE.value,
        shares=any(pool.request.declared is not None and pool.request.declared[0].weight is not None for pool in pools),
        load_factor_percent=values.get("loadFactorPercent", 100),
        body_bytes=values["bodyMiB"] * MIB,
        max_request_seconds=values["maxRequestSeconds"],
        port=ENGINE_PORT,
        health_port=RUNTIME_PORT,
        metrics_port=ROUTER_METRICS_PORT,
        memory_mib=values["memoryMiB"],
    )


def backends_name(service: str, pool: str) -> str:
    """The headless Service whose addresses are those of a pool's ready engines."""
    return f"{service}-vlm-{pool}"


def _host(request: PoolRequest) -> str:
    return f"{backends_name(request.service, request.pool)}.{request.namespace}.svc"


def _affinity(router: Router, reuse: Reuse) -> tuple[bool, str]:
    if router.affinity is Affinity.IMAGE:
        return True, "written in spec.router.affinity"
    if router.affinity is Affinity.NONE:
        return False, "written in spec.router.affinity"
    if reuse is Reuse.REPEATED:
        return True, "workload.images.reuse is Repeated, so an engine that has seen an image finds it in its cache"
    return (
        False,
        f"workload.images.reuse is {reuse.value}, so only load counts: the engine with the fewest requests is next",
    )


def _weights(pools: Sequence[RoutedPool]) -> tuple[dict[str, int], str, bool]:
    """Weights by pool, what they come from, and whether they are shares of whole pools."""
    declared = {p.request.pool: p.request.declared[0].weight for p in pools if p.request.declared is not None}
    given = {pool: weight for pool, weight in declared.items() if weight is not None}
    if len(given) == len(pools):
        return given, "written in spec.pools: shares of all requests, whatever the number of replicas", True
    capacity = {p.request.pool: _running(p) for p in pools}
    if any(number is None for number in capacity.values()):
        return dict.fromkeys(capacity, 1), "alike, because the concurrency of a pool is not known", False
    numbers = {pool: number or 1 for pool, number in capacity.items()}
    common = math.gcd(*numbers.values())
    scale = max(math.ceil(max(numbers.values()) / common / MAX_WEIGHT), 1)
    weights = {pool: max(round(number / common / scale), 1) for pool, number in numbers.items()}
    shown = ", ".join(f"{pool} {number}" for pool, number in numbers.items())
    return weights, f"of each replica, by the requests that it runs at once: {shown}", False


def _running(pool: RoutedPool) -> int | None:
    settings = pool.plan.settings if pool.plan is not None else []
    planned = (s.value for s in settings if s.name == "max_running_requests" and s.applied)
    value = next(planned, pool.request.spec.workload.concurrency)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _memory(spec: VLMServiceSpec, pools: Sequence[RoutedPool], routers: int, limit: int) -> tuple[int, str]:
    """MiB of one router: bodies are held whole until an engine has them."""
    images = spec.workload.images
    if images.width is None or images.height is None:
        body, of = limit // SLACK, "images without a declared size"
    else:
        # An image of noise as PNG, in base64.
        body = images.per_request * images.width * images.height * 4
        of = f"{images.per_request} image{'s' * (images.per_request > 1)} of {images.width} x {images.height}"
    running = sum((_running(pool) or 32) * _most(pool) for pool in pools)
    # Should one router be lost, the others take its requests.
    share = math.ceil(running / max(routers - 1, 1))
    # Of the requests in flight, few are still uploading; each body is held once by Envoy and once by the filter that reads it.
    uploading = max(math.ceil(share / 4), 8)
    mib = max(IDLE_MIB + math.ceil(uploading * body * 2 / MIB), IDLE_MIB + 2 * limit // MIB)
    return mib, f"{IDLE_MIB} MiB and {uploading} bodies of {of} at once, twice each, or at least one of the largest"


def _most(pool: RoutedPool) -> int:
    spec = pool.request.spec
    if spec.scaling is not None:
        return spec.scaling.max_replicas
    return 1 if spec.replicas is None else max(spec.replicas, 1)


def _findings(router: Router, pools: Sequence[RoutedPool]) -> list[Finding]:
    found = []
    for pool in pools:
        name = pool.request.pool
        if pool.plan is None:
            continue
        if pool.plan.engine.scheme == "https":
            found.append(
                error(
                    FindingReason.ROUTER_NEEDS_HTTP,
                    f"the engines of pool {name} have a certificate, and the router speaks http to them: remove ssl_certfile and "
                    "ssl_keyfile, or spec.router",
                    "spec.router",
                )
            )
        if router.affinity is Affinity.IMAGE and _keeps_nothing(pool.plan):
            found.append(
                error(
                    FindingReason.NO_CACHE_TO_MEET,
                    f"affinity Image sends an image to the engine that has it in a cache, and in pool {name} every cache is "
                    "off: set spec.router.affinity to None, or leave disable_radix_cache unset",
                    "spec.router.affinity",
                )
            )
    return found


def _keeps_nothing(plan: ServingPlan) -> bool:
    """Whether the engine keeps nothing of an image: no prefix, no embedding, no preprocessed image."""
    values = {setting.name: setting.value for setting in plan.settings if setting.applied}
    return (
        values.get("disable_radix_cache") is True
        and values.get("SGLANG_VLM_CACHE_SIZE_MB") in (0, "0")
        and values.get("mm_preprocess_cache_size_mb") in (None, 0, "0")
    )


def _setting(name: str, value: object, source: Source, reason: str) -> Setting:
    return Setting(name=name, value=value, applied=True, source=source, rule=f"router.{name}", reason=reason)
