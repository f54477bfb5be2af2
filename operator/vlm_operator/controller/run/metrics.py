"""The operator's own metrics."""

import sys
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from vlm_api.status import VLMServiceStatus
from vlm_operator.controller.run.queue import Key

# Reasons of the API server (metav1.StatusReason), and the operator's own: no answer, an internal error. A webhook may
# return any other; a label must not grow with them.
REASONS: Final = frozenset(
    {
        "Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid", "ServerTimeout",
        "StoreReadError", "Timeout", "TooManyRequests", "BadRequest", "MethodNotAllowed", "NotAcceptable",
        "RequestEntityTooLarge", "UnsupportedMediaType", "InternalError", "Expired", "ServiceUnavailable", "Unknown",
        "NoAnswer", "Bug",
    }
)  # fmt: skip

# A reconcile that took longer names its service.
SLOW_SECONDS: Final = 1.0

_State = tuple[str, str, str]
"""A condition's type, status and reason."""


class _Service(NamedTuple):
    """The result of the last reconcile of one service."""

    conditions: tuple[_State, ...]
    wanted: int
    available: int


class Metrics:
    """Counters and gauges, in one registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self.reconciles = Counter(
            "vlm_operator_reconciles", "Reconciles by result: success, error or gone.", ["result"], registry=registry
        )
        self._errors = Counter("vlm_operator_errors", "Failed reconciles by reason.", ["reason"], registry=registry)
        self._seconds = Histogram(
            "vlm_operator_reconcile_seconds",
            "How long a reconcile takes.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=registry,
        )
        self.applied_seconds = Histogram(
            "vlm_operator_event_to_applied_seconds",
            "From the first event about a service to the end of the reconcile that covers it.",
            buckets=(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
            registry=registry,
        )
        self._requests = Counter(
            "vlm_operator_api_requests",
            "Requests to the API server by verb and HTTP code, without the watches.",
            ["verb", "code"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            "vlm_operator_api_request_seconds",
            "How long the API server takes to answer.",
            ["verb"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=registry,
        )
        self.leader = Gauge("vlm_operator_leader", "1 while this operator is the one that works.", registry=registry)
        self._services: dict[Key, _Service] = {}
        self._slow: dict[Key, float] = {}
        registry.register(_ServiceCollector(lambda: list(self._services.items()), lambda: list(self._slow.items())))

    def count_failure(self, reason: str) -> None:
        """Counts a failed reconcile. A reason that Kubernetes does not define counts as ``Other``."""
        self.reconciles.labels("error").inc()
        self._errors.labels(reason if reason in REASONS else "Other").inc()

    def took(self, key: Key, seconds: float) -> None:
        """Counts how long a reconcile took, and keeps it with the service's name if that was long."""
        self._seconds.observe(seconds)
        if seconds > SLOW_SECONDS:
            self._slow[key] = seconds
        else:
            self._slow.pop(key, None)

    def count_request(self, verb: str, status: int, seconds: float) -> None:
        """Counts a request to the API server; status 0: no answer."""
        self._requests.labels(verb, str(status) if status else "none").inc()
        self._request_seconds.labels(verb).observe(seconds)

    def watch_queue(self, depth: Callable[[], int]) -> None:
        """Shows how many services wait for a worker."""
        gauge = Gauge("vlm_operator_queue_depth", "Services that wait to be reconciled.", registry=self.registry)
        gauge.set_function(depth)

    def update(self, key: Key, status: VLMServiceStatus) -> None:
        """Keeps the conditions of a service and the numbers of its replicas."""
        # Interned: few different texts for thousands of services.
        conditions = tuple(
            (sys.intern(c.type), sys.intern(c.status.value), sys.intern(c.reason)) for c in status.conditions
        )
        self._services[key] = _Service(conditions, status.desired_replicas or 0, status.available_replicas or 0)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._services.pop(key, None)
        self._slow.pop(key, None)


class _ServiceCollector(Collector):
    """Services by condition, and the replicas of each. Collected on request, so that states without a service disappear."""

    def __init__(
        self, services: Callable[[], Iterable[tuple[Key, _Service]]], slow: Callable[[], Iterable[tuple[Key, float]]]
    ) -> None:
        self._services = services
        self._slow = slow

    def collect(self) -> Iterable[GaugeMetricFamily]:
        present = sorted(self._services())
        services = GaugeMetricFamily(
            "vlm_operator_services",
            "VLMServices by condition, its status and its reason.",
            labels=["condition", "status", "reason"],
        )
        for state, number in sorted(Tally(state for _, one in present for state in one.conditions).items()):
            services.add_metric(list(state), number)
        # The label `namespace` is that of the operator's pod in Prometheus.
        labels = ["vlmservice_namespace", "vlmservice"]
        wanted = GaugeMetricFamily(
            "vlm_operator_service_wanted_replicas",
            "Replicas that a VLMService should have; 0 while it is suspended or scaled to zero.",
            labels=labels,
        )
        available = GaugeMetricFamily(
            "vlm_operator_service_available_replicas", "Replicas of a VLMService that answer requests.", labels=labels
        )
        for key, one in present:
            wanted.add_metric([key.namespace, key.name], one.wanted)
            available.add_metric([key.namespace, key.name], one.available)
        slow = GaugeMetricFamily(
            "vlm_operator_service_slow_reconcile_seconds",
            f"How long the last reconcile of a VLMService took, if that was more than {SLOW_SECONDS:.0f} s.",
            labels=labels,
        )
        for key, seconds in sorted(self._slow()):
            slow.add_metric([key.namespace, key.name], seconds)
        return services, wanted, available, slow
