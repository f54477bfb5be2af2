"""Whether the leader of a group is still there, for workers that must end after it."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

# Between its last request and the end of its runtime, the leader refuses connections for a moment.
GONE_AFTER_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 1.0
_CONNECT_SECONDS: Final = 2.0


class Leader:
    """The leader's runtime, pinned to its IP address: the next group's leader takes over the DNS name at once."""

    def __init__(self, name: str, port: int, is_formed: Callable[[], bool]) -> None:
        """``port``: of its runtime. ``is_formed``: whether the group is complete, so that the name is its leader's."""
        self._address, self._port = name, port
        threading.Thread(target=self._pin_address, args=(is_formed,), name="leader", daemon=True).start()

    def is_reachable(self) -> bool:
        """Whether its runtime accepts connections. One that hangs does too: the kernel accepts for it."""
        try:
            with socket.create_connection((self._address, self._port), timeout=_CONNECT_SECONDS):
                return True
        except OSError:
            return False

    def wait_until_gone(self) -> None:
        """Returns once it was unreachable for ``GONE_AFTER_SECONDS``."""
        wait_until_gone(self.is_reachable)

    def _pin_address(self, is_formed: Callable[[], bool]) -> None:
        while True:
            if is_formed():
                with contextlib.suppress(OSError):
                    self._address = str(socket.getaddrinfo(self._address, self._port, type=socket.SOCK_STREAM)[0][4][0])
                    return
            time.sleep(_POLL_SECONDS)


def wait_until_gone(
    is_reachable: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Returns once ``is_reachable`` was False for ``GONE_AFTER_SECONDS``."""
    last_reached = clock()
    while clock() - last_reached < GONE_AFTER_SECONDS:
        if is_reachable():
            last_reached = clock()
        sleep(_POLL_SECONDS)
