"""Asks NVML which GPUs are in this pod, and how they are. The only module that knows pynvml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar, cast

from vlm_api.report import FoundDevice, FoundHardware

T = TypeVar("T")

# nvml.h: the sensor of the GPU itself, errors that ECC could not correct, counted over the GPU's life.
_SENSOR_GPU: Final = 0
_UNCORRECTED: Final = 1
_LIFETIME: Final = 1

# nvml.h, nvmlReturn_t: a GPU that belongs to somebody else, one that fell off its bus (XID 79), and one that wants a reset.
_NO_PERMISSION: Final = 4
_GPU_IS_LOST: Final = 15
_RESET_REQUIRED: Final = 16

# The same under its newer name, of drivers from 535 on, and its older one, which newer versions may do without.
_REASONS: Final = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")

# nvml.h, nvmlClocksEventReasons*: those that mean that the GPU would run faster if it were allowed to.
THROTTLE_REASONS: Final[Mapping[str, int]] = {
    "power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "power_brake": 0x80,
}


class Nvml(Protocol):
    """The functions of pynvml that are used. Every one of them may raise ``NVMLError``."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetName(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMigMode(self, handle: Any) -> tuple[int, int]: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int: ...
    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int: ...


@dataclass(frozen=True)
class Reading:
    """How a GPU, or a slice of one, is now. None: the driver does not say it of this device."""

    index: int
    """The GPU's number in this pod; a slice has its GPU's."""
    uuid: str | None
    product: str | None
    mig: bool | None
    """Of a GPU: whether it is cut into slices. None for a slice."""
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    ecc_uncorrected_errors: int | None = None
    throttled: Mapping[str, bool] | None = None
    """By reason, the keys of THROTTLE_REASONS."""
    lost: bool = False
    """The driver cannot reach the GPU any more, so nothing else is known of it."""


def load() -> Nvml | None:
    """pynvml, or None where the image does not bring it."""
    try:
        module: Any = import_module("pynvml")
    except ImportError:
        return None
    return cast(Nvml, module)


def find_hardware(nvml: Nvml | None) -> FoundHardware:
    """The devices in this pod. Never raises: what cannot be read is null, a missing driver or a lost GPU is a note."""
    if nvml is None:
        return FoundHardware(note="pynvml is not in the engine's image, so the GPUs were not checked")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return FoundHardware(note=f"the NVIDIA driver's library cannot be used in this pod: {error}")
    try:
        gpus = list(_gpus(nvml))
        lost = [f"GPU {index} does not answer: {gpu.why}" for index, gpu in gpus if isinstance(gpu, _Lost)]
        return FoundHardware(
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
            devices=[found for _, gpu in gpus if not isinstance(gpu, _Lost) for found in _devices(nvml, gpu)],
            note="; ".join(lost) or None,
        )
    except nvml.NVMLError as error:
        return FoundHardware(note=f"the NVIDIA driver did not say which devices there are: {error}")
    finally:
        _maybe(nvml, nvml.nvmlShutdown)


def read(nvml: Nvml) -> list[Reading]:
    """How every GPU and slice in this pod is now; NVML is initialised. Raises NVMLError where the driver is gone."""
    readings: list[Reading] = []
    for index, handle in _gpus(nvml):
        if isinstance(handle, _Lost):
            readings.append(Reading(index=index, uuid=None, product=None, mig=None, lost=True))
            continue
        slices = _slices(nvml, handle)
        readings.append(_reading(nvml, handle, index, mig=slices is not None))
        readings += [_reading(nvml, part, index, mig=None) for part in slices or ()]
    return readings


@dataclass(frozen=True)
class _Lost:
    """In the place of a GPU's handle."""

    why: str


def _gpus(nvml: Nvml) -> Iterator[tuple[int, Any]]:
    """Number and handle of each GPU that is this pod's; one that does not answer hides no other."""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            if getattr(error, "value", None) != _NO_PERMISSION:
                yield index, _Lost(str(error))
            continue
        try:
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:  # usually: not supported
            if getattr(error, "value", None) in (_GPU_IS_LOST, _RESET_REQUIRED):
                handle = _Lost(str(error))
        yield index, handle


def _devices(nvml: Nvml, handle: Any) -> Iterator[FoundDevice]:
    slices = _slices(nvml, handle)
    if slices is None:
        yield _device(nvml, handle, capability_of=handle, mig=False)
    for part in slices or ():
        yield _device(nvml, part, capability_of=handle, mig=True)


def _slices(nvml: Nvml, handle: Any) -> list[Any] | None:
    """The slices of a GPU that is cut into such; None for a whole GPU."""
    mode = _maybe(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if mode is None or mode[0] == 0:
        return None
    parts = (
        _maybe(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        for number in range(_maybe(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)
    )
    return [part for part in parts if part is not None]


def _reading(nvml: Nvml, handle: Any, index: int, *, mig: bool | None) -> Reading:
    uuid = _maybe(nvml, nvml.nvmlDeviceGetUUID, handle)
    name = _maybe(nvml, nvml.nvmlDeviceGetName, handle)
    # The memory of a GPU that is cut is told of its slices, and would count twice.
    memory = None if mig else _maybe(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _maybe(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _maybe(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    throttled = _reasons(nvml, handle)
    return Reading(
        index=index,
        uuid=None if uuid is None else _text(uuid),
        product=None if name is None else _text(name),
        mig=mig,
        utilization_ratio=None if rates is None else rates.gpu / 100,
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        power_watts=None if milliwatts is None else milliwatts / 1000,
        temperature_celsius=_maybe(nvml, nvml.nvmlDeviceGetTemperature, handle, _SENSOR_GPU),
        ecc_uncorrected_errors=_maybe(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, _UNCORRECTED, _LIFETIME),
        throttled=None
        if throttled is None
        else {reason: bool(throttled & bit) for reason, bit in THROTTLE_REASONS.items()},
    )


def _reasons(nvml: Nvml, handle: Any) -> int | None:
    """Why the GPU's clocks are held down, as bits of THROTTLE_REASONS among others."""
    known = (getattr(nvml, name) for name in _REASONS if hasattr(nvml, name))
    return next((said for ask in known if (said := _maybe(nvml, ask, handle)) is not None), None)


def _device(nvml: Nvml, handle: Any, *, capability_of: Any, mig: bool) -> FoundDevice:
    name = _maybe(nvml, nvml.nvmlDeviceGetName, handle)
    uuid = _maybe(nvml, nvml.nvmlDeviceGetUUID, handle)
    # A slice has its GPU's compute capability, and NVML tells it of the GPU only.
    capability = _maybe(nvml, nvml.nvmlDeviceGetCudaComputeCapability, capability_of)
    memory = _maybe(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return FoundDevice(
        name=None if name is None else _text(name),
        uuid=None if uuid is None else _text(uuid),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        memory_mib=None if memory is None else int(memory.total) >> 20,
        mig=mig,
    )


def _maybe(nvml: Nvml, ask: Callable[..., T], *args: Any) -> T | None:
    """The answer, or None where the driver has none for this device."""
    try:
        return ask(*args)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    """Older versions of pynvml answer bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
