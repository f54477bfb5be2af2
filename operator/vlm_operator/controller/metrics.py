"""The operator's own metrics."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

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
        self._ready: dict[Key, tuple[bool, str]] = {}
        registry.register(_Services(lambda: self._ready.values()))

    def watch_queue(self, depth: Callable[[], int]) -> None:
        """Shows how many services wait for a worker."""
        gauge = Gauge("vlm_operator_queue_depth", "Services that wait to be reconciled.", registry=self.registry)
        gauge.set_function(depth)

    def set_ready(self, key: Key, ready: bool, reason: str) -> None:
        """Notes the condition Ready of a service."""
        self._ready[key] = (ready, reason)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._ready.pop(key, None)


class _Services(Collector):
    """Services by the status and reason of Ready, counted when asked, so that none stays behind."""

    def __init__(self, ready: Callable[[], Iterable[tuple[bool, str]]]) -> None:
        self._ready = ready

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "vlm_operator_services", "VLMServices by the condition Ready and its reason.", labels=["ready", "reason"]
        )
        for (ready, reason), number in sorted(Tally(list(self._ready())).items()):
            family.add_metric(["true" if ready else "false", reason], number)
        yield family
