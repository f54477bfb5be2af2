"""Asks NVML which GPUs are in this pod. The only module that knows pynvml."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from vlm_api.report import FoundDevice, FoundHardware

T = TypeVar("T")


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


def load() -> Nvml | None:
    """pynvml, or None where the image does not bring it."""
    try:
        module: Any = import_module("pynvml")
    except ImportError:
        return None
    return cast(Nvml, module)


def find_hardware(nvml: Nvml | None) -> FoundHardware:
    """The devices in this pod. Never raises: what cannot be read is null, and a missing driver is a note."""
    if nvml is None:
        return FoundHardware(note="pynvml is not in the engine's image, so the GPUs were not checked")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return FoundHardware(note=f"there is no NVIDIA driver in this pod: {error}")
    try:
        return FoundHardware(driver=_text(nvml.nvmlSystemGetDriverVersion()), devices=list(_devices(nvml)))
    except nvml.NVMLError as error:
        return FoundHardware(note=f"the NVIDIA driver did not say which devices there are: {error}")
    finally:
        _maybe(nvml, nvml.nvmlShutdown)


def _devices(nvml: Nvml) -> Iterator[FoundDevice]:
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        mode = _maybe(nvml, nvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] == 0:
            yield _device(nvml, handle, capability_of=handle, mig=False)
            continue
        for slice_index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            part = _maybe(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slice_index)
            if part is not None:
                yield _device(nvml, part, capability_of=handle, mig=True)


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
