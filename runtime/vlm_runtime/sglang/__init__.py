"""What the engine loads itself, by entry points. The real ``sglang`` is imported absolutely and only inside the engine.

SGLang imports these modules in each of its processes, so they import little.
"""

from typing import Final

# The port whose control paths the guard closes. Without it the guard does nothing.
ENV_GUARD: Final = "VLMSERVE_GUARD_PORT"


def drain_file(port: int | str) -> str:
    """The file that is there while the pod drains: the runtime makes it, the guard in front of that port looks for it.

    Not in TMPDIR, which the plan may set for the engine alone.
    """
    return f"/tmp/vlmserve-drains-{port}"
