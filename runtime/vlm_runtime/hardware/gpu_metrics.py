"""The GPUs' state as metrics, read from NVML at each scrape, for clusters without DCGM's exporter."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from vlm_runtime.hardware.nvml import Nvml, Reading, read

MAX_AGE_SECONDS: Final = 5.0
# A broken driver may not answer at all, and the scrape must still return the runtime's own metrics.
TIMEOUT_SECONDS: Final = 2.0
PREFIX: Final = "vlm_runtime"

LABELS: Final = ("gpu", "uuid", "product")


class GpuCollector(Collector):
    """Reads NVML in a thread of its own and caches the readings for some seconds. Never raises and never waits long."""

    def __init__(
        self,
        nvml: Nvml | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_age_seconds: float = MAX_AGE_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._nvml = nvml
        self._clock = clock
        self._max_age_seconds = max_age_seconds
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_initialized = False
        self._known: dict[int, Reading] = {}
        self._readings: tuple[float, Sequence[Reading] | None] = (float("-inf"), None)

    def describe(self) -> Iterable[Metric]:
        """The names, so that registering does not call the driver."""
        return families(())

    def collect(self) -> Iterable[Metric]:
        """The GPUs' metrics; only ``vlm_runtime_nvml_up`` if NVML does not answer."""
        return families(self._latest())

    def _latest(self) -> Sequence[Reading] | None:
        with self._lock:
            if self._nvml is None:
                return None
            is_reading = self._thread is not None and self._thread.is_alive()
            if not is_reading and self._clock() - self._readings[0] < self._max_age_seconds:
                return self._readings[1]
            if not is_reading:
                self._thread = threading.Thread(target=self._read, args=(self._nvml,), name="nvml", daemon=True)
                self._thread.start()
            assert self._thread is not None
            # Do not wait again for one that hangs since an earlier scrape.
            self._thread.join(0.0 if is_reading else self._timeout_seconds)
            return None if self._thread.is_alive() else self._readings[1]

    def _read(self, nvml: Nvml) -> None:
        readings: Sequence[Reading] | None = None
        try:
            if not self._is_initialized:
                nvml.nvmlInit()  # once: on a GPU without persistence mode it takes a second
                self._is_initialized = True
            readings = [self._keep_name(reading) for reading in read(nvml)]
        except Exception:
            # NVMLError, and whatever else a driver or pynvml raises: no readings rather than old ones.
            self._is_initialized = False
        self._readings = (self._clock(), readings)

    def _keep_name(self, reading: Reading) -> Reading:
        """Gives a lost GPU the name that it had, so that its series continues."""
        if reading.lost:
            known = self._known.get(reading.index, reading)
            return replace(reading, uuid=known.uuid, product=known.product)
        if reading.mig is not None:
            self._known[reading.index] = reading
        return reading


def families(readings: Sequence[Reading] | None) -> list[Metric]:
    """The metrics of these devices, without unknown values. None: NVML does not answer."""
    utilization = _gauge("gpu_utilization_ratio", "Share of the last second in which a kernel ran; 0 to 1.")
    used = _gauge("gpu_memory_used_bytes", "Memory in use on the GPU or slice, by any process.")
    total = _gauge("gpu_memory_total_bytes", "Memory of the GPU or slice.")
    power = _gauge("gpu_power_watts", "Power that the GPU draws.")
    temperature = _gauge("gpu_temperature_celsius", "Temperature of the GPU.")
    throttled = _gauge("gpu_throttled", "1 while the GPU's clocks are reduced for that reason.", "reason")
    mig = _gauge("gpu_mig_enabled", "1 if MIG is enabled on the GPU.")
    lost = _gauge("gpu_lost", "1 if the driver cannot reach the GPU any more (XID 79), or the GPU needs a reset.")
    errors = CounterMetricFamily(
        f"{PREFIX}_gpu_ecc_uncorrected_errors_total",
        "Memory errors that ECC could not correct, over the GPU's life.",
        labels=LABELS,
    )
    for reading in readings or ():
        labels = [str(reading.index), reading.uuid or "", reading.product or ""]
        for family, value in (
            (utilization, reading.utilization_ratio),
            (used, reading.memory_used_bytes),
            (total, reading.memory_total_bytes),
            (power, reading.power_watts),
            (temperature, reading.temperature_celsius),
            (mig, reading.mig),
            (lost, None if reading.mig is None and not reading.lost else reading.lost),
        ):
            if value is not None:
                family.add_metric(labels, float(value))
        if reading.ecc_uncorrected_errors is not None:
            errors.add_metric(labels, reading.ecc_uncorrected_errors)
        for reason, active in (reading.throttled or {}).items():
            throttled.add_metric([*labels, reason], float(active))
    up = GaugeMetricFamily(
        f"{PREFIX}_nvml_up",
        "1 if the driver's library answers; 0 without a driver, without the library, or while it hangs.",
        value=float(readings is not None),
    )
    return [up, utilization, used, total, power, temperature, errors, throttled, mig, lost]


def _gauge(name: str, help_text: str, *more_labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", help_text, labels=[*LABELS, *more_labels])
