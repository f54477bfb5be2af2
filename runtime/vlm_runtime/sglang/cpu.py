"""SGLang's platform plugin for the CPU: lets the unchanged published wheel serve images where there is no GPU.

SGLang imports this module in every process that it starts, on every machine. It therefore imports nothing and does
nothing unless the plan asked for the CPU.
"""

from __future__ import annotations

import os

from vlm_api.names import ENV_DEVICE


def activate() -> str | None:
    """The platform's class as SGLang's discovery wants it, or None: not asked for, so SGLang goes on as without us."""
    if os.environ.get(ENV_DEVICE) != "cpu":
        return None
    return "vlm_runtime.sglang.cpu_platform.CpuPlatform"
