"""SGLang's platform plugin for the CPU: lets the unchanged published wheel serve images where there is no GPU.

SGLang imports this module in every process that it starts, on every machine. It therefore imports nothing of SGLang's
and does nothing unless the plan asked for the CPU.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from vlm_api.names import ENV_DEVICE


def activate() -> str | None:
    """The platform's class as SGLang's discovery wants it, or None: not asked for, so SGLang goes on as without us.

    Raises RuntimeError where the CPU was asked for and this version cannot serve on it; SGLang logs that.
    """
    if os.environ.get(ENV_DEVICE) != "cpu":
        return None
    if find_spec("sglang.srt.platforms.cpu") is None:
        raise RuntimeError("this SGLang has no platform for the CPU: set spec.engine.version to 0.5.14 or later")
    return "vlm_runtime.sglang.cpu_platform.CpuPlatform"
