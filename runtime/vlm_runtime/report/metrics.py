"""The runtime's own metrics. The engine serves its own on its port."""

from collections.abc import Iterable
from itertools import pairwise

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from vlm_api.report import FeaturePool, Phase, Report
from vlm_runtime.hardware.gpu_metrics import GpuCollector
from vlm_runtime.hardware.nvml import Nvml
from vlm_runtime.report.state import Durations, RuntimeState

PREFIX = "vlm_runtime"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RuntimeCollector(Collector):
    """Reads the state at every scrape, so that no value is stale."""

    def __init__(self, state: RuntimeState) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """The metrics of the present report."""
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
        "setting_effective", "1 if the engine uses the planned value of a setting, else 0.", labels=["setting"]
    )
    for setting in report.settings:
        agrees.add_metric([setting.name], float(setting.agrees))
    took = _gauge("startup_phase_duration_seconds", "Duration of a finished phase of the start.", labels=["phase"])
    for began, after in pairwise(report.phases):
        took.add_metric([began.phase.value], after.after_seconds - began.after_seconds)
    pool = report.feature_pool or FeaturePool()
    return [
        info,
        phase,
        took,
        _gauge("ready", "1 while the pod serves image requests.", float(report.ready)),
        _gauge(
            "draining", "1 while running requests finish before the pod ends.", float(report.phase is Phase.DRAINING)
        ),
        _gauge("startup_duration_seconds", "From the start of the container to readiness.", durations.startup),
        _gauge("first_image_duration_seconds", "Duration of the first image request.", durations.first_image),
        _gauge("startup_budget_seconds", "How long a start may take.", float(report.budget_seconds)),
        _gauge("uptime_seconds", "Seconds since the start of the container.", report.elapsed_seconds),
        _gauge("devices", "GPUs in this pod, according to NVML.", float(len(report.hardware.devices))),
        _gauge(
            "setting_mismatches",
            "Planned settings for which the engine uses another value.",
            float(sum(not s.agrees for s in report.settings)),
        ),
        agrees,
        _gauge(
            "settings_not_reported",
            "Planned settings that the engine does not report.",
            float(len(report.not_reported)) if report.settings_read else None,
        ),
        _gauge("feature_pool_planned_bytes", "Planned size of the feature pool.", pool.planned_bytes),
        _gauge("feature_pool_size_bytes", "Size of the feature pool that the engine reserved.", pool.size_bytes),
    ]


def _gauge(name: str, help_text: str, value: float | None = None, labels: list[str] | None = None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", help_text, labels=labels)
    if value is not None:
        family.add_metric([], value)
    return family
