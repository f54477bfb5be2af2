"""Registries with every metric of the project in them, each with at least one series."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from vlm_api.report import EffectiveSetting, FeaturePool, FoundHardware
from vlm_api.status import Condition, ConditionStatus, VLMServiceStatus
from vlm_operator.controller.metrics import Metrics
from vlm_operator.controller.queue import Key
from vlm_runtime.effective import Comparison
from vlm_runtime.metrics import registry
from vlm_runtime.sglang.metrics import SPECS
from vlm_runtime.state import RuntimeState


class NVMLError(Exception):
    """As pynvml's."""


def gpu() -> Any:
    """A driver with one GPU that answers everything."""
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
    """A pod that serves on a GPU, with one setting that differs."""
    state = RuntimeState("0123456789abcdef", 600)
    state.found(FoundHardware(driver="580.95.05"))
    state.became_ready(0.25)
    different = EffectiveSetting(name="max_running_requests", planned=1, effective=2, agrees=False)
    state.compared(Comparison("0.5.23", [different], ["TORCHDYNAMO_DISABLE"], []))
    state.saw_pool(FeaturePool(planned_bytes=3072 << 20, size_bytes=3072 << 20))
    return registry(state, gpu())


def of_the_engine() -> CollectorRegistry:
    """What the plugins add to the engine's own metrics."""
    own = CollectorRegistry()
    for spec in SPECS:
        spec.make(own)
    return own


def of_the_operator() -> CollectorRegistry:
    """An operator that has worked and failed."""
    metrics = Metrics(CollectorRegistry())
    metrics.watch_queue(lambda: 1)
    metrics.reconciles.labels(result="success").inc()
    metrics.failed("Conflict")
    metrics.applied_seconds.observe(0.1)
    metrics.asked("apply", 200, 0.01)
    condition = Condition(
        type="Ready",
        status=ConditionStatus.TRUE,
        reason="Serving",
        message="Serves.",
        last_transition_time="2026-01-01T00:00:00Z",
    )
    status = VLMServiceStatus(conditions=[condition], desired_replicas=1, available_replicas=1)
    metrics.see(Key("ml", "vlm"), status)
    return metrics.registry
