"""What the hardware itself asks for, whatever the model."""

from __future__ import annotations

from collections.abc import Iterator

from vlm_api.plan import Setting, Sharing, Source
from vlm_operator.resolve.context import Context, Declared, applied
from vlm_operator.resolve.rules.engine import HOPPER, LARGE_MIB, OVERRIDDEN


def no_cuda_ipc_on_slices(context: Context, declared: Declared) -> Iterator[Setting]:
    """On a MIG slice that is as large as a GPU the engine would take CUDA IPC, which MIG does not offer."""
    gpu = context.gpu
    if gpu is None or gpu.sharing is not Sharing.MIG or "mm_feature_transport" in declared:
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
            "hardware.mig_transport",
            "MIG slices offer no CUDA IPC, which the engine would take on a slice of this size",
        )
