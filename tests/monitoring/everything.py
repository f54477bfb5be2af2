"""Registries with every metric of the project, each with at least one series."""

from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from vlm_api.report import DetectedHardware, EffectiveSetting, FeaturePool
from vlm_api.status import Condition, ConditionStatus, VLMServiceStatus
from vlm_operator.controller.run.metrics import Metrics
from vlm_operator.controller.run.queue import Key
from vlm_runtime.report.metrics import registry
from vlm_runtime.report.state import RuntimeState
from vlm_runtime.sglang.effective import Comparison
from vlm_runtime.sglang.inside.metric_specs import SPECS


class NVMLError(Exception):
    """Like pynvml's."""


def gpu() -> Any:
    """A driver with one GPU that answers every query."""
    ask = {
        "Count": 1,
        "HandleByIndex": 0,
        "Name": "NVIDIA H100 80GB HBM3",
        "UUID": "GPU-1",
        "MigMode": (0, 0),
        "MemoryInfo": SimpleNamespace(total=85520809984, used=1),
        "UtilizationRates": SimpleNamespace(gpu=97),
        "PowerUsage": 612345,
        "Temperature": 64,
        "TotalEccErrors": 0,
        "CurrentClocksThrottleReasons": 4,
    }
    answers = {f"nvmlDeviceGet{name}": (lambda *_, value=value: value) for name, value in ask.items()}
    return SimpleNamespace(NVMLError=NVMLError, nvmlInit=lambda: None, **answers)


def of_the_runtime() -> CollectorRegistry:
    """A serving pod with a GPU and one setting that differs from the plan."""
    state = RuntimeState("0123456789abcdef", 600)
    state.set_hardware(DetectedHardware(driver="580.95.05"))
    state.set_ready(0.25)
    different = EffectiveSetting(name="max_running_requests", planned=1, effective=2, agrees=False)
    state.set_comparison(Comparison("1.2.3", [different], ["TORCHDYNAMO_DISABLE"], []))
    state.set_feature_pool(FeaturePool(planned_bytes=3072 << 20, size_bytes=3072 << 20))
    return registry(state, gpu())


def of_the_engine() -> CollectorRegistry:
    """The metrics that the plugins add to the engine."""
    own = CollectorRegistry()
    for spec in SPECS:
        spec.create(own)
    return own


def of_the_operator() -> CollectorRegistry:
    """An operator with successes and failures."""
    metrics = Metrics(CollectorRegistry())
    metrics.watch_queue(lambda: 1)
    metrics.reconciles.labels(result="success").inc()
    metrics.count_failure("Conflict")
    metrics.applied_seconds.observe(0.1)
    metrics.count_request("apply", 200, 0.01)
    condition = Condition(
        type="Ready",
        status=ConditionStatus.TRUE,
        reason="Serving",
        message="Serves.",
        last_transition_time="2026-01-01T00:00:00Z",
    )
    status = VLMServiceStatus(conditions=[condition], desired_replicas=1, available_replicas=1)
    metrics.update(Key("ml", "vlm"), status)
    metrics.took(Key("ml", "vlm"), 20)
    return metrics.registry
