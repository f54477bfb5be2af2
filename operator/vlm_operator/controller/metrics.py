"""The operator's own metrics."""

from __future__ import annotations

import sys
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from vlm_api.status import Condition
from vlm_operator.controller.queue import Key

# Reasons that the API server gives (metav1.StatusReason), and the operator's own: no answer, a fault of the operator. A
# webhook may invent others; a label must not grow with them.
REASONS: Final = frozenset(
    {
        "Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid", "ServerTimeout",
        "StoreReadError", "Timeout", "TooManyRequests", "BadRequest", "MethodNotAllowed", "NotAcceptable",
        "RequestEntityTooLarge", "UnsupportedMediaType", "InternalError", "Expired", "ServiceUnavailable", "Unknown",
        "NoAnswer", "Bug",
    }
)  # fmt: skip


_State = tuple[str, str, str]
"""A condition's type, status and reason."""


class Metrics:
    """Counters and gauges, in one registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self.reconciles = Counter(
            "vlm_operator_reconciles", "Reconciles by result: success, error or gone.", ["result"], registry=registry
        )
        self._errors = Counter("vlm_operator_errors", "Failed reconciles by reason.", ["reason"], registry=registry)
        self.seconds = Histogram(
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
        self._conditions: dict[Key, tuple[_State, ...]] = {}
        registry.register(_Services(lambda: list(self._conditions.values())))

    def failed(self, reason: str) -> None:
        """Counts a reconcile that failed. A reason that Kubernetes' API machinery does not know counts as ``Other``."""
        self.reconciles.labels("error").inc()
        self._errors.labels(reason if reason in REASONS else "Other").inc()

    def asked(self, verb: str, status: int, seconds: float) -> None:
        """Counts a request to the API server; status 0: no answer."""
        self._requests.labels(verb, str(status) if status else "none").inc()
        self._request_seconds.labels(verb).observe(seconds)

    def watch_queue(self, depth: Callable[[], int]) -> None:
        """Shows how many services wait for a worker."""
        gauge = Gauge("vlm_operator_queue_depth", "Services that wait to be reconciled.", registry=self.registry)
        gauge.set_function(depth)

    def see(self, key: Key, conditions: Sequence[Condition]) -> None:
        """Notes the conditions of a service."""
        # Few different texts, kept once each: there may be thousands of services.
        self._conditions[key] = tuple(
            (sys.intern(c.type), sys.intern(c.status.value), sys.intern(c.reason)) for c in conditions
        )

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._conditions.pop(key, None)


class _Services(Collector):
    """Services by condition, counted when asked, so that a state that nobody is in any more is not shown."""

    def __init__(self, conditions: Callable[[], Iterable[Sequence[_State]]]) -> None:
        self._conditions = conditions

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "vlm_operator_services",
            "VLMServices by condition, its status and its reason.",
            labels=["condition", "status", "reason"],
        )
        states = (state for service in self._conditions() for state in service)
        for state, number in sorted(Tally(states).items()):
            family.add_metric(list(state), number)
        yield family
