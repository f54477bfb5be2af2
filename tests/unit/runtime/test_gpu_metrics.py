"""The GPUs' metrics from recorded answers of NVML."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from vlm_runtime.hardware.gpu_metrics import GpuCollector


class NVMLError(Exception):
    """As pynvml's."""

    def __init__(self, text: str, value: int = 3) -> None:
        super().__init__(text)
        self.value = value  # 3: not supported


H100 = {
    "Name": "NVIDIA H100 80GB HBM3",
    "UUID": "GPU-8f6d2c1e-0000-4000-8000-000000000001",
    "MigMode": (0, 0),
    "MemoryInfo": SimpleNamespace(total=85520809984, used=72477573120),
    "UtilizationRates": SimpleNamespace(gpu=97, memory=61),
    "PowerUsage": 612345,
    "Temperature": 64,
    "TotalEccErrors": 0,
    "CurrentClocksThrottleReasons": 0x4,
}
# Reports no reason while its clocks rest (0x1, idle), which is no throttling.
L4 = {
    "Name": b"NVIDIA L4",
    "UUID": b"GPU-8f6d2c1e-0000-4000-8000-000000000002",
    "MemoryInfo": SimpleNamespace(total=24152899584, used=1048576),
    "UtilizationRates": SimpleNamespace(gpu=0, memory=0),
    "PowerUsage": 16500,
    "Temperature": 41,
    "TotalEccErrors": 3,
    "CurrentClocksThrottleReasons": 0x1,
}
# A slice knows its memory and nothing that belongs to the whole GPU.
SLICE = {
    "Name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    "UUID": "MIG-11111111-0000-4000-8000-000000000003",
    "MemoryInfo": SimpleNamespace(total=42278584320, used=1000),
}
# Unified memory: NVML counts none, and there is no ECC and no MIG.
GB10 = {
    "Name": "NVIDIA GB10",
    "UUID": "GPU-8f6d2c1e-0000-4000-8000-000000000004",
    "UtilizationRates": SimpleNamespace(gpu=5, memory=0),
    "PowerUsage": 11000,
    "Temperature": 50,
    "CurrentClocksThrottleReasons": 0x20,
}


class Driver:
    """A driver with these cards; what a card does not have is Not Supported."""

    NVMLError = NVMLError

    def __init__(self, *cards: dict[str, Any], slices: tuple[dict[str, Any], ...] = ()) -> None:
        self.cards, self.slices = cards, slices
        self.fails: str | None = None
        self.lost: tuple[int, str] | None = None
        self.why = NVMLError("GPU is lost", 15)
        self.hangs: threading.Event | None = None
        self.inits = self.reads = 0

    def nvmlInit(self) -> None:
        self.inits += 1
        if self.fails:
            raise NVMLError(self.fails)

    def nvmlDeviceGetCount(self) -> int:
        self.reads += 1
        if self.hangs is not None:
            self.hangs.wait(30)
        if self.fails:
            raise NVMLError(self.fails)
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if self.lost == (index, "HandleByIndex"):
            raise self.why
        return self.cards[index]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: dict[str, Any]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: dict[str, Any], index: int) -> dict[str, Any]:
        if index >= len(self.slices):
            raise NVMLError("Not Found")
        return self.slices[index]

    def __getattr__(self, name: str) -> Any:
        question = name.removeprefix("nvmlDeviceGet")

        def answer(card: dict[str, Any], *_: int) -> Any:
            if self.lost is not None and self.lost[1] == question and card is self.cards[self.lost[0]]:
                raise self.why
            if question not in card:
                raise NVMLError("Not Supported")
            return card[question]

        return answer


class Clock:
    """Time that tests move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def scrape(collector: GpuCollector) -> dict[tuple[str, ...], float]:
    """(name without prefix, GPU, UUID, product, reason; without those that a series does not have) -> value"""
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        (
            sample.name.removeprefix("vlm_runtime_"),
            *(sample.labels[n] for n in ("gpu", "uuid", "product", "reason") if n in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def of(card: dict[str, Any], index: int = 0) -> tuple[str, str, str]:
    """A card's labels."""
    name, uuid = card["Name"], card["UUID"]
    return (
        str(index),
        uuid if isinstance(uuid, str) else uuid.decode(),
        name if isinstance(name, str) else name.decode(),
    )


def test_a_whole_gpu_has_every_metric_in_base_units() -> None:
    assert scrape(GpuCollector(Driver(H100))) == {
        ("nvml_up",): 1,
        ("gpu_utilization_ratio", *of(H100)): 0.97,
        ("gpu_memory_used_bytes", *of(H100)): 72477573120,
        ("gpu_memory_total_bytes", *of(H100)): 85520809984,
        ("gpu_power_watts", *of(H100)): 612.345,
        ("gpu_temperature_celsius", *of(H100)): 64,
        ("gpu_ecc_uncorrected_errors_total", *of(H100)): 0,
        ("gpu_throttled", *of(H100), "power_cap"): 1,
        ("gpu_throttled", *of(H100), "hardware_slowdown"): 0,
        ("gpu_throttled", *of(H100), "software_thermal"): 0,
        ("gpu_throttled", *of(H100), "hardware_thermal"): 0,
        ("gpu_throttled", *of(H100), "power_brake"): 0,
        ("gpu_mig_enabled", *of(H100)): 0,
        ("gpu_lost", *of(H100)): 0,
    }


@pytest.mark.parametrize("question", ["HandleByIndex", "MemoryInfo"])
def test_a_lost_gpu_keeps_its_name_and_hides_no_other(question: str) -> None:
    driver, clock = Driver(H100, L4), Clock()
    collector = GpuCollector(driver, clock=clock)
    scrape(collector)
    clock.now, driver.lost = 10.0, (1, question)
    found = scrape(collector)
    assert found[("gpu_lost", *of(H100))] == 0
    assert found[("gpu_utilization_ratio", *of(H100))] == 0.97
    assert {key: value for key, value in found.items() if key[1:2] == ("1",)} == {("gpu_lost", *of(L4, 1)): 1}
    assert found["nvml_up",] == 1
    assert driver.inits == 1  # the others go on being asked


def test_a_gpu_of_another_pod_is_not_lost() -> None:
    driver = Driver(H100, L4)
    driver.lost, driver.why = (1, "HandleByIndex"), NVMLError("Insufficient Permissions", 4)
    assert {key[1] for key in scrape(GpuCollector(driver)) if len(key) > 1} == {"0"}


def test_an_idle_gpu_is_not_throttled() -> None:
    found = scrape(GpuCollector(Driver(H100, L4)))
    assert found[("gpu_utilization_ratio", *of(L4, 1))] == 0
    assert found[("gpu_ecc_uncorrected_errors_total", *of(L4, 1))] == 3
    assert not any(value for key, value in found.items() if key[0] == "gpu_throttled" and key[1] == "1")


def test_with_mig_only_the_slices_report_memory() -> None:
    found = scrape(GpuCollector(Driver({**H100, "MigMode": (1, 1)}, slices=(SLICE, SLICE | {"UUID": "MIG-2"}))))
    memory = {key[2]: value for key, value in found.items() if key[0] == "gpu_memory_total_bytes"}
    assert memory == {SLICE["UUID"]: 42278584320, "MIG-2": 42278584320}
    assert found[("gpu_mig_enabled", *of(H100))] == 1
    assert found[("gpu_power_watts", *of(H100))] == 612.345
    assert ("gpu_power_watts", *of(SLICE)) not in found


def test_unknown_memory_has_no_series() -> None:
    found = scrape(GpuCollector(Driver(GB10)))
    assert {key[0] for key in found} == {
        "nvml_up",
        "gpu_utilization_ratio",
        "gpu_power_watts",
        "gpu_temperature_celsius",
        "gpu_throttled",
        "gpu_mig_enabled",
        "gpu_lost",
    }
    assert found[("gpu_throttled", *of(GB10), "software_thermal")] == 1


def test_without_a_library_or_driver_only_nvml_up_is_served() -> None:
    missing = Driver(H100)
    missing.fails = "Driver Not Loaded"
    assert scrape(GpuCollector(None)) == scrape(GpuCollector(missing)) == {("nvml_up",): 0}


def test_a_library_without_a_function_does_not_fail_the_scrape() -> None:
    old = SimpleNamespace(NVMLError=NVMLError, nvmlInit=lambda: None)
    assert scrape(GpuCollector(old)) == {("nvml_up",): 0}  # type: ignore[arg-type]


def test_throttling_is_read_by_its_newer_name_alone() -> None:
    card = {"CurrentClocksEventReasons": 0x4} | {k: v for k, v in H100.items() if k != "CurrentClocksThrottleReasons"}
    assert scrape(GpuCollector(Driver(card))) == scrape(GpuCollector(Driver(H100)))

    class Newer(Driver):
        def __getattr__(self, name: str) -> Any:
            if "Throttle" in name:
                raise AttributeError(name)
            return super().__getattr__(name)

    assert scrape(GpuCollector(Newer(card))) == scrape(GpuCollector(Driver(H100)))


def test_an_unexpected_error_gives_no_readings_rather_than_old_ones() -> None:
    driver, clock = Driver(H100), Clock()
    collector = GpuCollector(driver, clock=clock)
    assert scrape(collector)["nvml_up",] == 1
    clock.now, driver.cards = 10.0, (H100 | {"MemoryInfo": "what?"},)
    assert scrape(collector) == {("nvml_up",): 0}
    clock.now, driver.cards = 20.0, (H100,)
    assert scrape(collector)["nvml_up",] == 1


def test_scrapes_in_quick_succession_read_the_driver_once() -> None:
    driver, clock = Driver(H100), Clock()
    collector = GpuCollector(driver, clock=clock, max_age_seconds=5)
    for second in range(5):
        clock.now = float(second)
        scrape(collector)
    assert (driver.inits, driver.reads) == (1, 1)
    clock.now = 5.0
    scrape(collector)
    assert (driver.inits, driver.reads) == (1, 2)


def test_a_driver_that_returns_is_read_again() -> None:
    driver, clock = Driver(H100), Clock()
    collector = GpuCollector(driver, clock=clock)
    scrape(collector)
    clock.now, driver.fails = 10.0, "GPU is lost"
    assert scrape(collector) == {("nvml_up",): 0}
    clock.now, driver.fails = 20.0, None
    assert scrape(collector)["nvml_up",] == 1
    assert driver.inits == 2


def test_a_hanging_driver_does_not_delay_scrapes() -> None:
    driver = Driver(H100)
    driver.hangs = threading.Event()
    collector = GpuCollector(driver, timeout_seconds=0.05, max_age_seconds=0)
    for _ in range(3):
        assert scrape(collector) == {("nvml_up",): 0}
    assert driver.reads == 1
    driver.hangs.set()
    assert collector._thread is not None
    collector._thread.join(5)
    assert scrape(collector)["nvml_up",] == 1
