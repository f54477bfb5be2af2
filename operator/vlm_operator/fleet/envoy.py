"""The router's configuration: a static bootstrap of Envoy, without a control plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from vlm_api.names import READY_PATH

Config = dict[str, Any]

HEADER: Final = "x-vlmserve-image"
CLUSTER: Final = "engines"
# Requests of the router to itself, for metrics.
ADMIN_PORT: Final = 9901
CONNECT_SECONDS: Final = 2
HEALTH_SECONDS: Final = 2
# Names are looked up again after their time to live, and at least so often: CoreDNS answers for 5 to 30 s.
DNS_SECONDS: Final = 5
HEADERS_SECONDS: Final = 10
MAX_CONNECTIONS: Final = 20_000
# A kept connection ends between two requests, so that a router that is to end is left by its clients.
CONNECTION_SECONDS: Final = 60
# More than a hash ring needs for a few per cent of difference between engines.
RING: Final = 1024

_HTTP: Final = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER: Final = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_LUA: Final = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"


@dataclass(frozen=True)
class Backend:
    """The engines of one pool."""

    pool: str
    host: str
    """A name whose addresses are those of the pool's ready engines."""
    weight: int
    """Of each engine among all engines; with ``shares``, the pool's share of the requests."""


@dataclass(frozen=True)
class Routing:
    """What the router does, already decided."""

    backends: Sequence[Backend]
    by_image: bool
    """Whether requests about the same image meet the same engine."""
    shares: bool
    """Whether weights are shares of whole pools, as the user declared them."""
    load_factor_percent: int
    """With ``by_image``: the load of an engine over the mean above which an image goes to the next one."""
    body_bytes: int
    """The largest request body."""
    max_request_seconds: int
    port: int
    """Where clients connect to, and where engines listen."""
    health_port: int
    """Where the engines' runtimes say whether they are ready."""
    metrics_port: int
    memory_mib: int
    """Of one router."""
    connection_seconds: int = CONNECTION_SECONDS


def bootstrap(routing: Routing) -> Config:
    """Envoy's bootstrap configuration."""
    return {
        "admin": {"address": _address("127.0.0.1", ADMIN_PORT)},
        "static_resources": {
            "listeners": [_listener(routing), _metrics(routing)],
            "clusters": [*_clusters(routing), _admin()],
        },
        # A request that is refused at once is better than a router that is killed for its memory.
        "overload_manager": {
            "refresh_interval": "0.25s",
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3"
                        ".DownstreamConnectionsConfig",
                        "max_active_downstream_connections": MAX_CONNECTIONS,
                    },
                },
                {
                    "name": "envoy.resource_monitors.fixed_heap",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                        "max_heap_size_bytes": routing.memory_mib << 20,
                    },
                },
            ],
            "actions": [
                {
                    "name": "envoy.overload_actions.stop_accepting_requests",
                    "triggers": [{"name": "envoy.resource_monitors.fixed_heap", "threshold": {"value": 0.9}}],
                }
            ],
        },
    }


def _listener(routing: Routing) -> Config:
    seconds = f"{routing.max_request_seconds}s"
    filters = [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}]
    if routing.by_image:
        code = files(__package__).joinpath("image_key.lua").read_text()
        lua = {"@type": _LUA, "default_source_code": {"inline_string": code}}
        filters.insert(0, {"name": "envoy.filters.http.lua", "typed_config": lua})
    else:
        # Bodies are held whole all the same: a client that uploads slowly must not occupy an engine.
        limit = {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": routing.body_bytes,
        }
        filters.insert(0, {"name": "envoy.filters.http.buffer", "typed_config": limit})
    manager = {
        "@type": _HTTP,
        "stat_prefix": "clients",
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [_route(routing)]}]},
        "request_headers_timeout": f"{HEADERS_SECONDS}s",
        "request_timeout": seconds,
        "stream_idle_timeout": seconds,
        "common_http_protocol_options": {
            "idle_timeout": f"{routing.connection_seconds}s",
            "max_connection_duration": f"{routing.connection_seconds}s",
        },
        "http_protocol_options": {"allow_chunked_length": False},
        "normalize_path": True,
        "merge_slashes": True,
        "use_remote_address": True,
        "generate_request_id": False,
        "server_header_transformation": "PASS_THROUGH",
        "local_reply_config": _errors(),
    }
    return {
        "name": "clients",
        "address": _address("::", routing.port, both=True),
        "per_connection_buffer_limit_bytes": routing.body_bytes,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _route(routing: Routing) -> Config:
    target: Config = {"cluster": CLUSTER}
    if routing.shares:
        clusters = [{"name": _of_pool(b), "weight": b.weight} for b in routing.backends if b.weight]
        target = {"weighted_clusters": {"clusters": clusters, "use_hash_policy": routing.by_image}}
    if routing.by_image:
        target["hash_policy"] = [{"header": {"header_name": HEADER}, "terminal": True}]
    return {
        "match": {"prefix": "/"},
        # Without affinity nothing sets it, and what a client sends is of no use.
        "request_headers_to_remove": [HEADER] if not routing.by_image else [],
        "route": {
            **target,
            "timeout": f"{routing.max_request_seconds}s",
            # Only what no engine has seen is sent again.
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream,reset-before-request",
                "num_retries": 3,
                "host_selection_retry_max_attempts": 20,
                "retry_host_predicate": [
                    {
                        "name": "envoy.retry_host_predicates.previous_hosts",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3"
                            ".PreviousHostsPredicate"
                        },
                    }
                ],
                "retry_back_off": {"base_interval": "0.05s", "max_interval": "1s"},
            },
        },
    }


def _clusters(routing: Routing) -> list[Config]:
    if routing.shares:
        return [_cluster(_of_pool(b), [b], routing, weighted=False) for b in routing.backends if b.weight]
    return [_cluster(CLUSTER, routing.backends, routing, weighted=True)]


def _cluster(name: str, backends: Sequence[Backend], routing: Routing, *, weighted: bool) -> Config:
    return {
        "name": name,
        "cluster_type": {
            "name": "envoy.clusters.dns",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
                "dns_lookup_family": "ALL",
                "dns_refresh_rate": f"{DNS_SECONDS}s",
                "respect_dns_ttl": True,
            },
        },
        "connect_timeout": f"{CONNECT_SECONDS}s",
        "per_connection_buffer_limit_bytes": 1 << 20,
        **_balancing(routing),
        # Pods without a healthy engine get nothing, rather than all pods something.
        "common_lb_config": {
            "healthy_panic_threshold": {"value": 0},
            "update_merge_window": "0s",
            **_bounded(routing),
        },
        "circuit_breakers": {
            "thresholds": [{"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000}]
        },
        # An engine that refuses connections has the least to do, and would draw all requests until its next check.
        "outlier_detection": {
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": 1,
            "enforcing_consecutive_local_origin_failure": 100,
            # What an engine answers is no reason to leave it.
            "enforcing_consecutive_5xx": 0,
            "enforcing_success_rate": 0,
            "enforcing_local_origin_success_rate": 0,
            "base_ejection_time": "3s",
            "interval": "1s",
            "max_ejection_percent": 100,
        },
        "health_checks": [
            {
                "timeout": "2s",
                "interval": f"{HEALTH_SECONDS}s",
                "no_traffic_interval": f"{HEALTH_SECONDS}s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "http_health_check": {"path": READY_PATH},
            }
        ],
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [
                {
                    "lb_endpoints": [
                        {
                            "endpoint": {
                                "address": _address(b.host, routing.port),
                                "health_check_config": {"port_value": routing.health_port},
                            },
                            **({"load_balancing_weight": _weight(b, routing)} if weighted else {}),
                        }
                        for b in backends
                    ]
                }
            ],
        },
    }


def _weight(backend: Backend, routing: Routing) -> int:
    """Of one engine. With least requests, Envoy divides the weight by the requests in flight, so that these settle at the square
    root of the weights' proportion; the square gives an engine as many as its weight says."""
    return backend.weight if routing.by_image else backend.weight**2


def _balancing(routing: Routing) -> Config:
    if routing.by_image:
        return {"lb_policy": "RING_HASH", "ring_hash_lb_config": {"minimum_ring_size": RING}}
    return {"lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"choice_count": 4}}


def _bounded(routing: Routing) -> Config:
    if not routing.by_image:
        return {}
    return {"consistent_hashing_lb_config": {"hash_balance_factor": routing.load_factor_percent}}


def _errors() -> Config:
    """The router's own answers, as clients of the OpenAI API expect them."""
    return {
        "body_format": {
            "json_format": {
                "error": {"message": "%LOCAL_REPLY_BODY%", "type": "router_error", "code": "%RESPONSE_CODE%"}
            }
        }
    }


def _metrics(routing: Routing) -> Config:
    """Metrics and readiness alone, of all that Envoy's admin interface can do."""
    paths = {"/metrics": "/stats/prometheus", "/ready": "/ready"}
    routes = [
        {"match": {"path": path}, "route": {"cluster": "admin", "prefix_rewrite": target}}
        for path, target in paths.items()
    ]
    manager = {
        "@type": _HTTP,
        "stat_prefix": "metrics",
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}],
        "route_config": {"virtual_hosts": [{"name": "metrics", "domains": ["*"], "routes": routes}]},
    }
    return {
        "name": "metrics",
        "address": _address("::", routing.metrics_port, both=True),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _admin() -> Config:
    return {
        "name": "admin",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": "admin",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address("127.0.0.1", ADMIN_PORT)}}]}],
        },
    }


def _of_pool(backend: Backend) -> str:
    return f"{CLUSTER}-{backend.pool}"


def _address(host: str, port: int, *, both: bool = False) -> Config:
    both_families = {"ipv4_compat": True} if both else {}
    return {"socket_address": {"address": host, "port_value": port, **both_families}}
