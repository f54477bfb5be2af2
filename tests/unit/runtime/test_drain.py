"""How a pod ends whose engine calls itself unhealthy, and one that computes for another pod."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from unit.runtime.harness import Container, make_plan

from vlm_runtime.head import AWAY_SECONDS, Head, gone
from vlm_runtime.processes import children

Start = Callable[..., Container]
FOLLOWER = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "127.0.0.1"}


class Answer(threading.Thread):
    """A client that reads an answer of four seconds."""

    def __init__(self, run: Container) -> None:
        super().__init__(daemon=True)
        self.port, self.body = run.engine_port, b""
        self.start()
        time.sleep(0.5)

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.suppress(OSError, http.client.HTTPException):  # the engine was ended under it
            connection.request("POST", "/v1/chat/completions", json.dumps({"stream": True, "max_tokens": 40}))
            self.body = connection.getresponse().read()

    def is_whole(self) -> bool:
        self.join(30)
        return self.body.endswith(b"[DONE]\n\n")


def test_one_late_answer_about_health_takes_a_pod_out_for_a_while_and_not_for_ever(container: Start) -> None:
    run = container(options=["--hang-seconds", "20"])
    run.wait_ready()
    run.get("/become_unhealthy", run.engine_port)
    run.wait_for(lambda: run.get("/ready", run.engine_port)[0] == 200, "healed", 60)
    assert "it answers again" in run.log()
    run.wait_ready()


def test_the_answers_of_an_unhealthy_engine_are_finished_before_it_ends(container: Start) -> None:
    run = container()
    run.wait_ready()
    answer = Answer(run)
    run.get("/become_unhealthy", run.engine_port)
    run.terminate()
    assert run.wait_exit() == 0
    assert answer.is_whole()


def test_a_member_of_a_group_does_not_end_before_the_head(container: Start) -> None:
    run = container(make_plan(runtime={"nodes": 2}), env=FOLLOWER, ready_path=False)
    run.wait_ready()
    (engine,) = children(run.process.pid)
    run.terminate()
    run.wait_for(lambda: "waiting for the head" in run.log(), "waiting")
    time.sleep(1)
    assert run.process.poll() is None
    assert run.get("/health", run.engine_port)[0] == 200  # it was not asked to end
    os.kill(engine, signal.SIGTERM)  # what the head's last words do
    assert run.wait_exit() == 0
    assert not run.termination_log.exists()


def test_a_member_whose_head_is_gone_waits_no_longer(container: Start) -> None:
    nowhere = FOLLOWER | {"LWS_LEADER_ADDRESS": "head.group.invalid"}
    run = container(make_plan(runtime={"nodes": 2, "drain_seconds": 300}), env=nowhere, ready_path=False)
    run.wait_ready()
    run.terminate()
    assert run.wait_exit() == 0
    assert "the head of the group is gone" in run.log()


def test_a_head_is_gone_once_it_was_away_for_some_seconds() -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    # Away for less than that twice.
    gone(lambda: now in (0.0, 2.0, 4.0), lambda: now, sleep)
    assert now >= 4.0 + AWAY_SECONDS


def test_the_next_groups_head_of_the_same_name_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    formed, address = threading.Event(), "127.0.0.2"

    def resolve(name: str, port: int, *_: Any, **__: Any) -> list[Any]:
        host = address if name == "head.group" else name
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with socket.create_server(("127.0.0.2", 0)) as old:
        port = old.getsockname()[1]
        head = Head("head.group", port, formed.is_set)
        assert head.is_there()
        formed.set()
        until = time.monotonic() + 30
        while head._address != "127.0.0.2":
            assert time.monotonic() < until
            time.sleep(0.1)
        address = "127.0.0.1"  # what the name means from now on
        assert head.is_there()
    with socket.create_server(("127.0.0.1", port)):
        assert not head.is_there()


def test_a_member_whose_head_never_ends_is_cut_in_the_end(container: Start) -> None:
    run = container(make_plan(runtime={"nodes": 2, "drain_seconds": 2}), env=FOLLOWER, ready_path=False)
    run.wait_ready()
    run.terminate()
    assert run.wait_exit() == 0
    assert "requests still ran after 2 s" in run.log()
