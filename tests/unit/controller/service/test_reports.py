"""When the runtimes of pods are asked for their reports, and what is known of one that answers late or not at all."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from unit.controller.fakes import AtOnce
from unit.controller.observations import pod, report

from vlm_api.report import Report
from vlm_operator.controller.run.queue import Key
from vlm_operator.controller.service import reports
from vlm_operator.controller.service.reports import SERVING_SECONDS, SOON_AGAIN, STARTING_SECONDS, Reports
from vlm_operator.controller.status.pods import PodView

KEY = Key("default", "vlm")
ASKED = report(ready=True, settings_read=True)


class World:
    """Pods that answer what the test wants, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.answer: Report | None = ASKED
        self.questions = 0
        self.reports = Reports(self._ask, lambda: self.now, threads=AtOnce())

    def _ask(self, address: str) -> Report | None:
        self.questions += 1
        return self.answer

    def look(self, *pods: PodView, after: float = 0.0) -> Report | None:
        """What is known of the first pod."""
        self.now += after
        return self.reports.of(KEY, pods).get(pods[0].name)


READY = pod(ready=True)


def test_a_pod_that_serves_is_asked_rarely() -> None:
    world = World()
    for _ in range(5):
        assert world.look(READY, after=SERVING_SECONDS / 10) == ASKED
    assert world.questions == 1
    world.look(READY, after=SERVING_SECONDS)
    assert world.questions == 2


def test_a_pod_is_asked_when_its_readiness_changes_or_it_restarts() -> None:
    world = World()
    for state in (pod(), READY, pod(ready=True, restarts=1)):
        world.look(state)
    assert world.questions == 3


def test_a_starting_pod_is_asked_again_soon() -> None:
    world = World()
    world.look(pod())
    world.look(pod(), after=STARTING_SECONDS * 0.9)  # the soonest that the queue brings the service again
    assert world.questions == 2
    assert STARTING_SECONDS * 1.1 < 6, "its phase in the status is at most six seconds old"


@pytest.mark.parametrize("state", [{"address": None}, {"running": False}, {"deleting": True}])
def test_pods_that_cannot_answer_are_not_asked(state: dict[str, Any]) -> None:
    world = World()
    assert world.look(pod(**state)) is None
    assert world.questions == 0


def test_pods_that_are_gone_are_forgotten() -> None:
    world = World()
    world.look(READY)
    world.look(pod("other"))
    world.look(READY)
    world.reports.forget(KEY)
    world.look(READY)
    assert world.questions == 4


def test_a_lost_answer_changes_nothing() -> None:
    world = World()
    assert world.look(READY) == ASKED
    world.answer = None
    assert world.look(READY, after=SERVING_SECONDS * 1.2) == ASKED
    assert world.reports.unsettled(KEY)
    world.answer = ASKED
    world.look(READY, after=STARTING_SECONDS)
    assert not world.reports.unsettled(KEY)


def test_the_report_of_a_container_is_dropped_when_it_restarts() -> None:
    world = World()
    world.look(READY)
    world.answer = None
    assert world.look(pod(restarts=1)) is None


def test_a_serving_pod_without_settings_is_asked_again_soon_but_not_forever() -> None:
    for silent in (None, report(ready=True)):
        world = World()
        world.answer = silent
        world.look(READY)
        assert world.reports.unsettled(KEY)
        for _ in range(20):
            world.look(READY, after=STARTING_SECONDS)
        assert world.questions == SOON_AGAIN
        assert not world.reports.unsettled(KEY)


def test_a_worker_of_a_group_has_no_settings_to_report() -> None:
    world = World()
    world.answer = report(ready=True)
    world.look(pod(ready=True, leader=False))
    assert not world.reports.unsettled(KEY)


def test_a_slow_pod_blocks_nothing_and_requeues_its_service_later() -> None:
    answers, waited, requeued = threading.Event(), threading.Event(), []

    def ask(address: str) -> Report:
        answers.wait(30)
        return ASKED

    def hear(key: Key) -> None:
        requeued.append(key)
        waited.set()

    slow = Reports(ask, lambda: 1000.0, hear)
    began = time.monotonic()
    assert slow.of(KEY, [READY]) == {}
    assert slow.of(KEY, [READY]) == {}, "asked once, however often somebody looks"
    assert time.monotonic() - began < 10
    assert not requeued
    answers.set()
    assert waited.wait(30)
    assert slow.of(KEY, [READY]) == {READY.name: ASKED}
    assert requeued == [KEY]


def test_what_a_pod_answers_late_about_a_container_that_is_gone_is_not_taken() -> None:
    answers, questions = threading.Event(), []

    def ask(address: str) -> Report | None:
        questions.append(address)
        if len(questions) > 1:
            return None
        answers.wait(30)
        return ASKED

    slow = Reports(ask, lambda: 1000.0)
    slow.of(KEY, [READY])
    answers.set()
    assert slow.of(KEY, [pod(restarts=1)]) == {}
    assert len(questions) == 2


def test_a_stopping_operator_sends_no_more_requests() -> None:
    world = World()
    world.reports.close()
    assert world.look(READY) is None
    assert world.questions == 0


@contextlib.contextmanager
def speaking(data: bytes) -> Iterator[int]:
    """The port of a server that says this to whoever comes, and hangs up."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                there, _ = server.accept()
                with there:
                    there.recv(1000)
                    there.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_anything_else_at_the_report_s_port_is_not_a_report(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with speaking(data) as port:
        monkeypatch.setattr(reports, "RUNTIME_PORT", port)
        assert reports.fetch("127.0.0.1") is None


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_a_report_with_invalid_numbers_is_not_a_report(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = ASKED.model_dump_json(by_alias=True).encode()
    odd = re.sub(rb'"elapsedSeconds":[0-9.]+', b'"elapsedSeconds":' + number.encode(), body)
    assert odd != body
    with speaking(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(odd), odd)) as port:
        monkeypatch.setattr(reports, "RUNTIME_PORT", port)
        assert reports.fetch("127.0.0.1") is None


def test_a_report_is_read_from_the_pod_itself_whatever_proxy_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = ASKED.model_dump_json(by_alias=True).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with speaking(answer) as port:
        monkeypatch.setattr(reports, "RUNTIME_PORT", port)
        assert reports.fetch("127.0.0.1") == ASKED


def test_an_answer_that_comes_by_the_byte_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def drip() -> None:
        with contextlib.suppress(OSError):
            there, _ = server.accept()
            with there:
                there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while True:
                    there.sendall(b" ")
                    time.sleep(0.05)

    monkeypatch.setattr(reports, "ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=drip, daemon=True).start()
        monkeypatch.setattr(reports, "RUNTIME_PORT", server.getsockname()[1])
        began = time.monotonic()
        assert reports.fetch("127.0.0.1") is None
        assert time.monotonic() - began < 20  # of 50 s


def test_a_starting_pod_that_did_not_answer_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, questions = threading.Event(), []

    def ask(address: str) -> None:
        questions.append(address)
        if len(questions) > 1:
            silent.wait(30)

    now = [1000.0]
    starting = pod(ready=False)
    slow = Reports(ask, lambda: now[0])
    deadline = time.monotonic() + 30
    while slow.of(KEY, [starting]) or KEY not in slow._answers or starting.uid not in slow._answers[KEY]:
        assert time.monotonic() < deadline
    now[0] += STARTING_SECONDS
    waited: list[int] = []
    monkeypatch.setattr(reports, "wait", lambda those, timeout: waited.append(len(list(those))))
    slow.of(KEY, [starting])
    silent.set()
    assert waited == [0]
    assert slow._asking[KEY] or len(questions) == 2, "it was asked, and nobody waits"


def test_pods_of_one_namespace_that_hang_hold_up_no_report_of_another() -> None:
    hang, asked = threading.Event(), []

    def ask(address: str) -> Report | None:
        asked.append(address)
        if address != "fine":
            hang.wait(20)
        return ASKED

    late: list[Key] = []
    of = Reports(ask, on_late=late.append)
    crowd = [pod(f"p{n}", uid=f"p{n}", ready=True, address=f"hangs-{n}") for n in range(100)]
    one = pod("one", uid="one", ready=True, address="fine")
    try:
        of.of(Key("hostile", "vlm"), crowd)
        assert of.of(KEY, [one]) == {"one": ASKED}
        assert len(asked) == reports.AT_ONCE_OF_A_NAMESPACE + 1
        hang.set()
        deadline = time.monotonic() + 10
        while len(late) < 100 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(late) == 100, "all are asked in the end"
        while of._turns._asking and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not of._turns._asking
    finally:
        hang.set()
        of.close()
