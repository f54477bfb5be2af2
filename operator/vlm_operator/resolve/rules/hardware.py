"""What the hardware itself asks for, whatever the model."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Setting, Sharing, Source
from vlm_operator.resolve.context import Context, Declared, applied
from vlm_operator.resolve.rules.engine import HOPPER, LARGE_MIB, OVERRIDDEN


def no_cuda_ipc_on_parts(context: Context, declared: Declared) -> Iterator[Setting]:
    """On a MIG slice or a vGPU that is as large as a GPU the engine would take CUDA IPC, which neither is sure to offer."""
    gpu = context.gpu
    if gpu is None or "mm_feature_transport" in declared or not (gpu.virtual or gpu.sharing is Sharing.MIG):
        return
    capability, memory_mib = gpu.compute_capability, gpu.memory_mib
    chosen = (
        capability is not None
        and capability.major == HOPPER
        and (memory_mib or 0) >= LARGE_MIB
        and context.model.architecture in OVERRIDDEN
        and context.engine.has_override_set
    )
    if chosen and context.knows("mm_feature_transport"):
        yield applied(
            "mm_feature_transport",
            "cpu",
            Source.HARDWARE,
            "hardware.vgpu_transport" if gpu.virtual else "hardware.mig_transport",
            "NVIDIA names no CUDA IPC among what a vGPU can do, and the engine would take it on one of this size"
            if gpu.virtual
            else "MIG slices offer no CUDA IPC, which the engine would take on a slice of this size",
        )
