"""The operator's own metrics."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from vlm_api.status import Condition
from vlm_operator.controller.queue import Key


class Metrics:
    """Counters and gauges, in one registry."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.registry = registry
        self.reconciles = Counter(
            "vlm_operator_reconciles", "Reconciles by result: success, error or gone.", ["result"], registry=registry
        )
        self.errors = Counter("vlm_operator_errors", "Failed reconciles by reason.", ["reason"], registry=registry)
        self.seconds = Histogram(
            "vlm_operator_reconcile_seconds",
            "How long a reconcile takes.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=registry,
        )
        self.leader = Gauge("vlm_operator_leader", "1 while this operator is the one that works.", registry=registry)
        self._conditions: dict[Key, Sequence[Condition]] = {}
        registry.register(_Services(lambda: list(self._conditions.values())))

    def watch_queue(self, depth: Callable[[], int]) -> None:
        """Shows how many services wait for a worker."""
        gauge = Gauge("vlm_operator_queue_depth", "Services that wait to be reconciled.", registry=self.registry)
        gauge.set_function(depth)

    def see(self, key: Key, conditions: Sequence[Condition]) -> None:
        """Notes the conditions of a service."""
        self._conditions[key] = conditions

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._conditions.pop(key, None)


class _Services(Collector):
    """Services by condition, counted when asked, so that a state that nobody is in any more is not shown."""

    def __init__(self, conditions: Callable[[], Iterable[Sequence[Condition]]]) -> None:
        self._conditions = conditions

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "vlm_operator_services",
            "VLMServices by condition, its status and its reason.",
            labels=["condition", "status", "reason"],
        )
        states = ((c.type, c.status.value, c.reason) for service in self._conditions() for c in service)
        for state, number in sorted(Tally(states).items()):
            family.add_metric(list(state), number)
        yield family
