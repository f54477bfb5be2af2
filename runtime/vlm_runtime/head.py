"""Whether the head of a group is still there, for members that are to end after it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

# Between the end of its requests and the end of its runtime nothing takes connections for a moment.
AWAY_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 1.0
_CONNECT_SECONDS: Final = 2.0


class Head:
    """The pod that answers for the group, known by its IP address: the next group's head has the same name at once."""

    def __init__(self, name: str, port: int, formed: Callable[[], bool]) -> None:
        """``port`` of its runtime; ``formed`` tells whether the group has found together, so that the name is its head's."""
        self._address, self._port = name, port
        threading.Thread(target=self._find, args=(formed,), name="head", daemon=True).start()

    def is_there(self) -> bool:
        """Whether its runtime takes connections. One that hangs does too: the kernel answers for it."""
        try:
            with socket.create_connection((self._address, self._port), timeout=_CONNECT_SECONDS):
                return True
        except OSError:
            return False

    def wait_until_gone(self) -> None:
        """Returns once it was not there for ``AWAY_SECONDS``."""
        gone(self.is_there)

    def _find(self, formed: Callable[[], bool]) -> None:
        while True:
            if formed():
                with contextlib.suppress(OSError):
                    self._address = str(socket.getaddrinfo(self._address, self._port, type=socket.SOCK_STREAM)[0][4][0])
                    return
            time.sleep(_PAUSE_SECONDS)


def gone(
    is_there: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns once nothing was there for ``AWAY_SECONDS``."""
    seen = clock()
    while clock() - seen < AWAY_SECONDS:
        if is_there():
            seen = clock()
        sleep(_PAUSE_SECONDS)
