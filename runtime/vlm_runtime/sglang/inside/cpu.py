"""SGLang's platform plugin for the CPU: lets the unchanged published wheel serve images without a GPU.

SGLang imports this module in every process, on every machine. So it imports nothing of SGLang, and does nothing unless the
plan is for the CPU.
"""

import os
from importlib.util import find_spec

from vlm_api.names import ENV_DEVICE
from vlm_runtime.sglang.releases import CPU_PLATFORM_SINCE


def activate() -> str | None:
    """The platform's class for SGLang's discovery, or None to leave SGLang unchanged.

    Raises RuntimeError if the plan is for the CPU and this release cannot serve on it; SGLang logs that.
    """
    if os.environ.get(ENV_DEVICE) != "cpu":
        return None
    if find_spec("sglang.srt.platforms.cpu") is None:
        release = ".".join(map(str, CPU_PLATFORM_SINCE))
        raise RuntimeError(
            f"this SGLang release cannot serve on the CPU: set spec.engine.version to {release} or later"
        )
    return "vlm_runtime.sglang.inside.cpu_platform.CpuPlatform"
