"""From which release on SGLang behaves in a way that the runtime depends on. Every such number stands here."""

from typing import Final

# GET /ready says cheaply whether the engine serves. Before, /health runs a token through the model, for at least 1 s.
READY_SINCE: Final = (0, 5, 20)
# GET /ping tells an engine that calls itself unhealthy from one that somebody paused.
TRUE_PING_SINCE: Final = (0, 5, 23)
# A platform for the CPU exists, on which the plugin in inside/cpu.py builds.
CPU_PLATFORM_SINCE: Final = (0, 5, 14)


def is_at_least(version: str | None, release: tuple[int, ...]) -> bool:
    """Whether ``0.5.20.post1`` is 0.5.20 or later; an unknown version counts as new."""
    numbers: list[int] = []
    for part in (version or "").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return not numbers or tuple(numbers) >= release
