"""The runtime's own metrics. The engine's are on the engine's port."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from vlm_api.report import FeaturePool, Phase, Report
from vlm_runtime.gpu import GpuCollector
from vlm_runtime.nvml import Nvml
from vlm_runtime.state import Durations, RuntimeState

PREFIX = "vlm_runtime"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RuntimeCollector(Collector):
    """Reads the state at every scrape, so that no value can be stale."""

    def __init__(self, state: RuntimeState) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """One family a fact."""
        return families(self._state.report(), self._state.durations)


def registry(state: RuntimeState, nvml: Nvml | None) -> CollectorRegistry:
    """The runtime's registry: its state, the GPUs, and the process' own CPU and memory (``vlm_runtime_process_``)."""
    own = CollectorRegistry()
    own.register(RuntimeCollector(state))
    own.register(GpuCollector(nvml))
    ProcessCollector(namespace=PREFIX, registry=own)
    return own


def exposition(own: CollectorRegistry) -> bytes:
    """Prometheus' text format."""
    return generate_latest(own)


def families(report: Report, durations: Durations) -> list[Metric]:
    """The metrics of one report. A duration is absent until it is known."""
    info = _gauge("info", "The plan and the engine of this pod; always 1.", labels=["plan", "engine_version", "driver"])
    info.add_metric([report.plan_hash, report.engine_version or "", report.hardware.driver or ""], 1)
    phase = _gauge("phase", "1 for the phase that the pod is in, 0 for the others.", labels=["phase"])
    for candidate in Phase:
        phase.add_metric([candidate.value], float(candidate is report.phase))
    agrees = _gauge(
        "setting_effective",
        "1 where the engine uses the planned value of a setting, 0 where it differs.",
        labels=["setting"],
    )
    for setting in report.settings:
        agrees.add_metric([setting.name], float(setting.agrees))
    took = _gauge(
        "startup_phase_duration_seconds", "How long a phase of the start took, once it is over.", labels=["phase"]
    )
    for began, after in pairwise(report.phases):
        took.add_metric([began.phase.value], after.after_seconds - began.after_seconds)
    pool = report.feature_pool or FeaturePool()
    return [
        info,
        phase,
        took,
        _gauge("ready", "1 while requests about images are answered.", float(report.ready)),
        _gauge("draining", "1 while running requests end before the pod does.", float(report.phase is Phase.DRAINING)),
        _gauge("startup_duration_seconds", "From the start of the container to the first answer.", durations.startup),
        _gauge("first_image_duration_seconds", "How long the first request with an image took.", durations.first_image),
        _gauge("startup_budget_seconds", "How long a start may take.", float(report.budget_seconds)),
        _gauge("uptime_seconds", "Seconds since the start of the container.", report.elapsed_seconds),
        _gauge("devices", "GPUs in this pod, as NVML counts them.", float(len(report.hardware.devices))),
        _gauge(
            "setting_mismatches",
            "Planned settings for which the engine uses another value.",
            float(sum(not s.agrees for s in report.settings)),
        ),
        agrees,
        _gauge(
            "settings_not_told",
            "Planned settings of which the engine says nothing.",
            float(len(report.not_told)) if report.asked else None,
        ),
        _gauge("image_pool_planned_bytes", "What the plan gives the pool of image features.", pool.planned_bytes),
        _gauge("image_pool_size_bytes", "What the engine really reserved for it.", pool.size_bytes),
    ]


def _gauge(name: str, help_text: str, value: float | None = None, labels: list[str] | None = None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", help_text, labels=labels)
    if value is not None:
        family.add_metric([], value)
    return family
