"""Reads from NVML which GPUs are in this pod, and their state. The only module that imports pynvml."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar, cast

from vlm_api.report import DetectedDevice, DetectedHardware

T = TypeVar("T")

# nvml.h: the sensor of the GPU itself; errors that ECC could not correct, over the GPU's life.
_SENSOR_GPU: Final = 0
_UNCORRECTED: Final = 1
_LIFETIME: Final = 1

# nvml.h, nvmlReturn_t: a GPU of another pod, one that fell off the bus (XID 79), and one that needs a reset.
_NO_PERMISSION: Final = 4
_GPU_IS_LOST: Final = 15
_RESET_REQUIRED: Final = 16

# The newer name, of drivers from 535 on, and the older one, which newer drivers may lack.
_REASONS: Final = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")

# nvml.h, nvmlClocksEventReasons*: those that keep a GPU from running faster.
THROTTLE_REASONS: Final[Mapping[str, int]] = {
    "power_cap": 0x4,
    "hardware_slowdown": 0x8,
    "software_thermal": 0x20,
    "hardware_thermal": 0x40,
    "power_brake": 0x80,
}


class Nvml(Protocol):
    """The functions of pynvml in use. Each may raise ``NVMLError``."""

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
    """The state of a GPU, or of a slice of one. None: the driver does not report it for this device."""

    index: int
    """The GPU's number in this pod; a slice has its GPU's."""
    uuid: str | None
    product: str | None
    mig: bool | None
    """For a GPU: whether MIG is enabled. None for a slice."""
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    ecc_uncorrected_errors: int | None = None
    throttled: Mapping[str, bool] | None = None
    """By reason, the keys of THROTTLE_REASONS."""
    lost: bool = False
    """The driver cannot reach the GPU any more, so nothing else is known about it."""


def load() -> Nvml | None:
    """pynvml, or None if the image does not have it."""
    try:
        module: Any = import_module("pynvml")
    except ImportError:
        return None
    return cast(Nvml, module)


def detect_hardware(nvml: Nvml | None) -> DetectedHardware:
    """The devices in this pod. Never raises NVMLError: what cannot be read is null, a missing driver or lost GPU is a note."""
    if nvml is None:
        return DetectedHardware(note="the GPUs were not checked: the engine's image does not have pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return DetectedHardware(note=f"the NVIDIA driver's library cannot be used in this pod: {error}")
    try:
        gpus = list(_gpus(nvml))
        lost = [f"GPU {index} does not answer: {gpu.reason}" for index, gpu in gpus if isinstance(gpu, _Lost)]
        return DetectedHardware(
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
            devices=[device for _, gpu in gpus if not isinstance(gpu, _Lost) for device in _devices(nvml, gpu)],
            note="; ".join(lost) or None,
        )
    except nvml.NVMLError as error:
        return DetectedHardware(note=f"the NVIDIA driver did not list its devices: {error}")
    finally:
        _maybe(nvml, nvml.nvmlShutdown)


def read(nvml: Nvml) -> list[Reading]:
    """The state of every GPU and slice in this pod. Needs nvmlInit; raises NVMLError if the driver is gone."""
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
    """Instead of the handle of a GPU that does not answer."""

    reason: str


def _gpus(nvml: Nvml) -> Iterator[tuple[int, Any]]:
    """Number and handle of each of this pod's GPUs; one that does not answer does not hide the others."""
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


def _devices(nvml: Nvml, handle: Any) -> Iterator[DetectedDevice]:
    slices = _slices(nvml, handle)
    if slices is None:
        yield _device(nvml, handle, capability_of=handle, mig=False)
    for part in slices or ():
        yield _device(nvml, part, capability_of=handle, mig=True)


def _slices(nvml: Nvml, handle: Any) -> list[Any] | None:
    """The MIG slices of a GPU; None for a whole GPU."""
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
    # With MIG, the slices report the memory; the GPU's own would count twice.
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
    """Why the GPU's clocks are reduced, as bits of THROTTLE_REASONS among others."""
    functions = (getattr(nvml, name) for name in _REASONS if hasattr(nvml, name))
    return next((bits for function in functions if (bits := _maybe(nvml, function, handle)) is not None), None)


def _device(nvml: Nvml, handle: Any, *, capability_of: Any, mig: bool) -> DetectedDevice:
    name = _maybe(nvml, nvml.nvmlDeviceGetName, handle)
    uuid = _maybe(nvml, nvml.nvmlDeviceGetUUID, handle)
    # A slice has its GPU's compute capability, which NVML reports for the GPU only.
    capability = _maybe(nvml, nvml.nvmlDeviceGetCudaComputeCapability, capability_of)
    memory = _maybe(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return DetectedDevice(
        name=None if name is None else _text(name),
        uuid=None if uuid is None else _text(uuid),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        memory_mib=None if memory is None else int(memory.total) >> 20,
        mig=mig,
    )


def _maybe(nvml: Nvml, function: Callable[..., T], *args: Any) -> T | None:
    """The result, or None if the driver has none for this device."""
    try:
        return function(*args)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    """Older versions of pynvml return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
