"""The platform that the plugin activates. Only SGLang imports it, after the plugin asked for it.

SGLang's own CPU paths want kernels that the published wheel does not carry (sgl_kernel's CPU build, vllm's rotary
embedding). A platform from outside the tree gets PyTorch's own operators in the same places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform

if TYPE_CHECKING:
    import torch


class CpuPlatform(SRTPlatform):  # type: ignore[misc]  # SGLang ships no types
    """The CPU, as a platform from outside SGLang's tree."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"

    def get_device_total_memory(self, device_id: int = 0) -> int:
        """Bytes of the machine's memory."""
        import psutil

        return int(psutil.virtual_memory().total)

    def get_current_memory_usage(self, device: Any = None) -> float:
        """Bytes in use on the whole machine, so that total minus usage is what can still be had."""
        import psutil

        memory = psutil.virtual_memory()
        return float(memory.total - memory.available)

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        """(free, total) in bytes."""
        import psutil

        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)

    def is_pin_memory_available(self, device: Any = None) -> bool:
        """There is no device that memory could be pinned for."""
        return False

    def get_default_attention_backend(self) -> str:
        """The only backend that needs no compiled kernels."""
        return "torch_native"

    def get_device(self, device_id: int = 0) -> torch.device:
        """The one CPU device."""
        import torch

        return torch.device("cpu")

    def set_device(self, device: torch.device) -> None:
        """There is nothing to choose."""

    def get_device_name(self, device_id: int = 0) -> str:
        """As SGLang logs it."""
        return "cpu"

    def get_device_uuid(self, device_id: int = 0) -> str:
        """A CPU has none."""
        return "cpu"

    def get_device_capability(self, device_id: int = 0) -> None:
        """A CPU has no compute capability."""

    def get_torch_distributed_backend_str(self) -> str:
        """The backend of torch.distributed that works without a GPU."""
        return "gloo"
