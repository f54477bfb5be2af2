"""The platform that the CPU plugin activates. Only SGLang imports it.

SGLang's own CPU paths need kernels that the published wheel does not carry (sgl_kernel's CPU build, vllm's rotary
embedding). An out-of-tree platform gets PyTorch's own operators instead.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform


class CpuPlatform(CpuDeviceMixin, SRTPlatform):  # type: ignore[misc]  # SGLang has no types
    """The CPU as an out-of-tree platform."""

    _enum = PlatformEnum.OOT

    def get_default_attention_backend(self) -> str:
        """The only backend that needs no compiled kernels."""
        return "torch_native"

    def is_pin_memory_available(self, device: object = None) -> bool:
        """There is no device to pin memory for."""
        return False

    def get_torch_profiler_activity_str(self) -> str:
        """What ``/start_profile`` records. SGLang's own method raises, which ends the scheduler and so the engine."""
        return "CPU"

    def get_torch_profiler_activity(self) -> Any:
        """The same, as PyTorch's value."""
        from torch.profiler import ProfilerActivity

        return ProfilerActivity.CPU
