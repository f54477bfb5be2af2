"""Plugins that the engine loads by entry points. Only these modules import SGLang, and only inside the engine.

SGLang imports them in each of its processes, so they import little.
"""

from typing import Final

# The port whose control paths the guard closes; without it, the plugins for serving do nothing.
ENV_GUARD: Final = "VLMSERVE_GUARD_PORT"
# The SHA-256 of the API key, in hex, if clients need one: SGLang does not ask a WebSocket for it.
ENV_KEY_DIGEST: Final = "VLMSERVE_GUARD_KEY_SHA256"
# What one request may bring: the fields of ``limits.Limits`` with commas.
ENV_LIMITS: Final = "VLMSERVE_GUARD_LIMITS"


def drain_file(port: int | str) -> str:
    """The file that exists while the pod drains: the runtime creates it, the guard of that port checks for it.

    Not in TMPDIR, which the plan may set for the engine only.
    """
    return f"/tmp/vlmserve-drains-{port}"
