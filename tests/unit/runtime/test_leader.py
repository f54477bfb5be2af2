"""When a group's leader counts as gone."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from vlm_runtime.supervise import leader as module
from vlm_runtime.supervise.leader import GONE_AFTER_SECONDS, Leader, wait_until_gone


def test_a_leader_is_gone_after_some_seconds_without_an_answer() -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    wait_until_gone(lambda: now in (0.0, 2.0, 4.0), lambda: now, sleep)
    assert now >= 4.0 + GONE_AFTER_SECONDS


def test_the_next_groups_leader_of_the_same_name_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    formed, refused, address = threading.Event(), threading.Event(), "127.0.0.2"

    def resolve(name: str, port: int, *_: Any, **__: Any) -> list[Any]:
        if formed.is_set() and not refused.is_set():
            refused.set()
            raise socket.gaierror("temporary failure in name resolution")
        host = address if name == "leader.group" else name
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    with socket.create_server(("127.0.0.2", 0)) as old:
        port = old.getsockname()[1]
        leader = Leader("leader.group", port, formed.is_set)
        assert leader.is_reachable()
        formed.set()
        deadline = time.monotonic() + 30
        while leader._address != "127.0.0.2":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert refused.is_set()
        address = "127.0.0.1"  # what the name means from now on
        assert leader.is_reachable()
    with socket.create_server(("127.0.0.1", port)):
        assert not leader.is_reachable()
