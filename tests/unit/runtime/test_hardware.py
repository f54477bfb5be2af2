"""Recorded answers of NVML, and mismatches with the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from vlm_api.plan import ExpectedHardware
from vlm_api.report import DetectedDevice, DetectedHardware
from vlm_runtime.hardware.mismatch import find_mismatches
from vlm_runtime.hardware.nvml import detect_hardware


class NVMLError(Exception):
    """As pynvml's."""


@dataclass
class Card:
    """One physical GPU. None: the driver answers Not Supported."""

    name: str | bytes | None = "NVIDIA H100 80GB HBM3"
    capability: tuple[int, int] | None = (9, 0)
    memory_bytes: int | None = 85520809984
    mig: bool | None = False
    slices: list[Card | None] = field(default_factory=list)
    lost: bool = False


class FakeNvml:
    """A driver with these cards."""

    NVMLError = NVMLError

    def __init__(self, *cards: Card, missing: str | None = None) -> None:
        self.cards, self.missing = cards, missing

    @staticmethod
    def known(value: object) -> object:
        if value is None:
            raise NVMLError("Not Supported")
        return value

    def nvmlInit(self) -> None:
        if self.missing:
            raise NVMLError(self.missing)

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        if self.cards[index].lost:
            raise NVMLError("GPU is lost")
        return self.cards[index]

    def nvmlDeviceGetName(self, card: Card) -> object:
        return self.known(card.name)

    def nvmlDeviceGetUUID(self, card: Card) -> object:
        return b"GPU-4f1c"

    def nvmlDeviceGetCudaComputeCapability(self, card: Card) -> object:
        return self.known(card.capability)

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> object:
        return SimpleNamespace(total=self.known(card.memory_bytes))

    def nvmlDeviceGetMigMode(self, card: Card) -> object:
        return (int(bool(self.known(card.mig))), 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> object:
        return self.known(card.slices[index] if index < len(card.slices) else None)


SLICE = Card(name="NVIDIA H100 80GB HBM3 MIG 3g.40gb", capability=None, memory_bytes=42278584320)


def test_a_whole_gpu_is_described() -> None:
    found = detect_hardware(FakeNvml(Card()))
    assert found.driver == "580.95.05"
    assert found.devices == [
        DetectedDevice(name="NVIDIA H100 80GB HBM3", uuid="GPU-4f1c", compute_capability="9.0", memory_mib=81559)
    ]


def test_the_slices_of_a_gpu_count_and_not_the_gpu() -> None:
    found = detect_hardware(FakeNvml(Card(mig=True, slices=[None, SLICE, None, SLICE])))
    assert [(d.mig, d.memory_mib, d.compute_capability) for d in found.devices] == [(True, 40320, "9.0")] * 2


def test_unknown_values_are_null() -> None:
    found = detect_hardware(FakeNvml(Card(name=b"NVIDIA GB10", capability=(12, 1), memory_bytes=None, mig=None)))
    assert found.devices == [DetectedDevice(name="NVIDIA GB10", uuid="GPU-4f1c", compute_capability="12.1")]


def test_a_lost_gpu_is_named_as_missing() -> None:
    found = detect_hardware(FakeNvml(Card(), Card(lost=True), Card()))
    assert len(found.devices) == 2
    assert find_mismatches(ExpectedHardware(device="cuda", devices=3), found) == [
        "the plan needs 3 devices, the pod has 2 (GPU 1 does not answer: GPU is lost)"
    ]


def test_a_missing_driver_is_a_note() -> None:
    found = detect_hardware(FakeNvml(missing="NVML Shared Library Not Found"))
    assert found == DetectedHardware(
        note="the NVIDIA driver's library cannot be used in this pod: NVML Shared Library Not Found"
    )


def test_a_missing_library_is_a_note() -> None:
    note = detect_hardware(None).note
    assert note is not None
    assert "pynvml" in note


PLANNED = ExpectedHardware(device="cuda", devices=2, compute_capability="9.0", memory_mib=81559)


def found(*devices: DetectedDevice) -> DetectedHardware:
    return DetectedHardware(driver="580.95.05", devices=list(devices))


def h100(**changes: object) -> DetectedDevice:
    return DetectedDevice.model_validate({"name": "H100", "computeCapability": "9.0", "memoryMiB": 81559, **changes})


def test_the_planned_hardware_has_no_mismatch() -> None:
    assert find_mismatches(PLANNED, found(h100(), h100())) == []


def test_more_than_planned_is_no_mismatch() -> None:
    better = h100(computeCapability="10.0", memoryMiB=183359)
    assert find_mismatches(PLANNED, found(better, better, better)) == []


def test_a_label_in_other_units_is_no_mismatch() -> None:
    assert find_mismatches(PLANNED, found(h100(memoryMiB=80000), h100())) == []


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        (h100(computeCapability="8.9"), "device 1 (H100) has compute capability 8.9, but the plan needs 9.0"),
        (h100(memoryMiB=40960), "device 1 (H100) has 40960 MiB, but the plan needs 81559 MiB"),
        (h100(mig=True), "device 1 (H100) is a MIG slice, but the plan needs a whole GPU"),
    ],
)
def test_a_mismatch_names_both_values(device: DetectedDevice, problem: str) -> None:
    assert find_mismatches(PLANNED, found(h100(), device)) == [problem]


def test_too_few_devices_are_counted() -> None:
    assert find_mismatches(PLANNED, found(h100())) == ["the plan needs 2 devices, the pod has 1"]


def test_capabilities_are_compared_as_numbers() -> None:
    blackwell = PLANNED.model_copy(update={"compute_capability": "10.0", "devices": 1})
    assert find_mismatches(blackwell, found(h100())) != []


def test_planned_slices_are_fine() -> None:
    planned = ExpectedHardware(device="cuda", devices=1, compute_capability="9.0", memory_mib=40320, mig=True)
    assert find_mismatches(planned, found(h100(memoryMiB=40320, mig=True))) == []


@pytest.mark.parametrize(
    "hardware",
    [DetectedHardware(note="no driver"), found(DetectedDevice(), DetectedDevice())],
    ids=["no driver", "no answers"],
)
def test_unknown_values_are_no_mismatch(hardware: DetectedHardware) -> None:
    assert find_mismatches(PLANNED, hardware) == []


def test_a_cpu_plan_has_no_mismatch() -> None:
    assert find_mismatches(ExpectedHardware(device="cpu", devices=0), found()) == []
