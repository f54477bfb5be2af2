"""Ports for servers of the tests."""

import itertools
import os
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"

# Below the kernel's range for outgoing connections (32768 and up) and the cluster's node ports (30000 and up): a port
# from there may be taken between the choice and the listening, which for an engine is half a minute later.
_FIRST: Final = 20100
_LAST: Final = 29899
_next = itertools.count(os.getpid() * 97 % (_LAST - _FIRST))


def free_port() -> int:
    """A port that nobody listens on and that this process has not given away before (9,800 of them)."""
    for offset in itertools.islice(_next, _LAST - _FIRST):
        port = _FIRST + offset % (_LAST - _FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {_FIRST} and {_LAST}")
