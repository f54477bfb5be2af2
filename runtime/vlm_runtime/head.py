"""Whether the head of a group is still there, for members that are to end after it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final

# Its name may be missing for a moment while pods come and go.
AWAY_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 1.0


def is_there(address: str, port: int) -> bool:
    """Whether a runtime takes connections there. One that hangs does too: the kernel answers for it."""
    try:
        with socket.create_connection((address, port), timeout=2.0):
            return True
    except OSError:
        return False


def wait_until_gone(
    there: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns once nothing was there for ``AWAY_SECONDS``."""
    seen = clock()
    while clock() - seen < AWAY_SECONDS:
        if there():
            seen = clock()
        sleep(_PAUSE_SECONDS)
