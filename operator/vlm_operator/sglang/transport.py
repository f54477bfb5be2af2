"""How image features travel from the HTTP process to the schedulers: through the CPU, or by CUDA IPC."""

from typing import Final

from vlm_operator.sglang.context import Context, Declared

LEGACY_TRANSPORT: Final = "SGLANG_USE_CUDA_IPC_TRANSPORT"
ALLOCATOR_VARIABLES: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
FALSE_WORDS: Final = {"0", "false", "no", "n", "off", "f"}
# Transports whose features wait in a pool on the first device.
ON_THE_GPU: Final = ("cuda_ipc", "cuda_vmm")


def travels_by_cuda_ipc(declared: Declared) -> bool:
    """Whether CUDA IPC is set, by the flag or by the older variable."""
    transport = declared.value("mm_feature_transport")
    legacy = declared.value(LEGACY_TRANSPORT)
    return transport == "cuda_ipc" or (transport is None and legacy is not None and not is_false(legacy))


def is_false(value: object) -> bool:
    """Whether the engine reads a variable's value as false."""
    return str(value).strip().lower() in FALSE_WORDS


def transport(declared: Declared) -> str | None:
    """How image features travel: as set, or as the engine is expected to choose; None if neither is known."""
    if travels_by_cuda_ipc(declared):
        return "cuda_ipc"
    setting = declared.get("mm_feature_transport")
    value = None if setting is None else setting.value if setting.applied else setting.expected
    return None if value is None else str(value)


def declines_cuda_ipc(context: Context) -> tuple[str, str] | None:
    """(path, reason) of a user's choice that rules CUDA IPC out, in any spelling; None if there is none."""
    choices = context.choices
    legacy = choices.settings.get(LEGACY_TRANSPORT)
    if legacy is not None and is_false(legacy.value):
        return legacy.path, f"{LEGACY_TRANSPORT}={legacy.value} declines CUDA IPC"
    for name in ALLOCATOR_VARIABLES:
        value = choices.env.get(name) or str(choices.get(name) or "")
        if _expandable_segments(value):
            return "spec.engine.env", (
                f"{name} turns on the allocator's expandable_segments, and CUDA IPC cannot share such memory in most containers"
            )
    if choices.get("image_processor_backend") == "pil":
        path = choices.settings["image_processor_backend"].path
        return (
            path,
            "image_processor_backend pil computes features on the CPU, so there is nothing for CUDA IPC to move",
        )
    return None


def _expandable_segments(allocator: str) -> bool:
    for item in allocator.split(","):
        key, _, value = item.partition(":")
        if key.strip() == "expandable_segments" and value.strip().lower() == "true":
            return True
    return False
