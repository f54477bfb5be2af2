"""Every metric that rules and dashboards may query, from the code that exports it."""

from collections.abc import Iterator
from functools import cache

from monitoring.engine_metrics import listed
from monitoring.everything import of_the_engine, of_the_operator, of_the_runtime
from monitoring.rendered import recorded
from prometheus_client import PROCESS_COLLECTOR

HISTOGRAM = ("_bucket", "_sum", "_count")
OF_PROMETHEUS = ("up", "ALERTS")
# The operator serves them from prometheus_client's default registry, which `everything` does not use.
OF_EVERY_PROCESS = tuple(s.name for family in PROCESS_COLLECTOR.collect() for s in family.samples)


@cache
def known() -> frozenset[str]:
    """Sample names of the operator, the runtime, its plugins, the engine, Prometheus itself and the recording rules."""
    return frozenset({*_ours(), *_engine(), *recorded(), *OF_PROMETHEUS, *OF_EVERY_PROCESS})


def _ours() -> Iterator[str]:
    for registry in (of_the_runtime(), of_the_engine(), of_the_operator()):
        for family in registry.collect():
            yield from (sample.name for sample in family.samples)


def _engine() -> Iterator[str]:
    for name, kind in listed().items():
        yield from (f"{name}{suffix}" for suffix in HISTOGRAM) if kind == "histogram" else (name,)
