"""NVML's answers, recorded, and what they mean for the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from vlm_api.plan import ExpectedHardware
from vlm_api.report import FoundDevice, FoundHardware
from vlm_runtime.hardware import shortcomings
from vlm_runtime.nvml import find_hardware


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
    found = find_hardware(FakeNvml(Card()))
    assert found.driver == "580.95.05"
    assert found.devices == [
        FoundDevice(name="NVIDIA H100 80GB HBM3", uuid="GPU-4f1c", compute_capability="9.0", memory_mib=81559)
    ]


def test_the_slices_of_a_gpu_count_and_not_the_gpu() -> None:
    found = find_hardware(FakeNvml(Card(mig=True, slices=[None, SLICE, None, SLICE])))
    assert [(d.mig, d.memory_mib, d.compute_capability) for d in found.devices] == [(True, 40320, "9.0")] * 2


def test_what_the_driver_does_not_know_is_null() -> None:
    found = find_hardware(FakeNvml(Card(name=b"NVIDIA GB10", capability=(12, 1), memory_bytes=None, mig=None)))
    assert found.devices == [FoundDevice(name="NVIDIA GB10", uuid="GPU-4f1c", compute_capability="12.1")]


def test_a_lost_gpu_is_one_less_than_planned_and_named() -> None:
    found = find_hardware(FakeNvml(Card(), Card(lost=True), Card()))
    assert len(found.devices) == 2
    assert shortcomings(ExpectedHardware(device="cuda", devices=3), found) == [
        "3 devices were planned, 2 are in the pod (GPU 1 does not answer: GPU is lost)"
    ]


def test_a_missing_driver_is_a_fact() -> None:
    found = find_hardware(FakeNvml(missing="NVML Shared Library Not Found"))
    assert found == FoundHardware(
        note="the NVIDIA driver's library cannot be used in this pod: NVML Shared Library Not Found"
    )


def test_a_missing_library_is_a_fact() -> None:
    note = find_hardware(None).note
    assert note is not None
    assert "pynvml" in note


PLANNED = ExpectedHardware(device="cuda", devices=2, compute_capability="9.0", memory_mib=81559)


def found(*devices: FoundDevice) -> FoundHardware:
    return FoundHardware(driver="580.95.05", devices=list(devices))


def h100(**changes: object) -> FoundDevice:
    return FoundDevice.model_validate({"name": "H100", "computeCapability": "9.0", "memoryMiB": 81559, **changes})


def test_the_planned_hardware_has_no_shortcomings() -> None:
    assert shortcomings(PLANNED, found(h100(), h100())) == []


def test_more_than_planned_is_no_shortcoming() -> None:
    better = h100(computeCapability="10.0", memoryMiB=183359)
    assert shortcomings(PLANNED, found(better, better, better)) == []


def test_a_label_that_counts_memory_otherwise_is_no_shortcoming() -> None:
    assert shortcomings(PLANNED, found(h100(memoryMiB=80000), h100())) == []


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        (h100(computeCapability="8.9"), "device 1 (H100) has compute capability 8.9, 9.0 was planned"),
        (h100(memoryMiB=40960), "device 1 (H100) has 40960 MiB, 81559 MiB were planned"),
        (h100(mig=True), "device 1 (H100) is a MIG slice, a whole GPU was planned"),
    ],
)
def test_less_is_named_with_both_values(device: FoundDevice, problem: str) -> None:
    assert shortcomings(PLANNED, found(h100(), device)) == [problem]


def test_too_few_devices_are_counted() -> None:
    assert shortcomings(PLANNED, found(h100())) == ["2 devices were planned, 1 are in the pod"]


def test_capabilities_are_compared_as_numbers() -> None:
    blackwell = PLANNED.model_copy(update={"compute_capability": "10.0", "devices": 1})
    assert shortcomings(blackwell, found(h100())) != []


def test_slices_that_were_planned_are_fine() -> None:
    planned = ExpectedHardware(device="cuda", devices=1, compute_capability="9.0", memory_mib=40320, mig=True)
    assert shortcomings(planned, found(h100(memoryMiB=40320, mig=True))) == []


@pytest.mark.parametrize(
    "hardware", [FoundHardware(note="no driver"), found(FoundDevice(), FoundDevice())], ids=["no driver", "no answers"]
)
def test_what_is_not_known_is_not_held_against_the_pod(hardware: FoundHardware) -> None:
    assert shortcomings(PLANNED, hardware) == []


def test_nothing_is_asked_of_a_pod_on_the_cpu() -> None:
    assert shortcomings(ExpectedHardware(device="cpu", devices=0), found()) == []
