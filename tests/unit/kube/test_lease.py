"""Leader election."""

import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from unit.controller.fakes import FakeClient

from vlm_operator.kube import lease
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.lease import LEASE_SECONDS, Election, LeaseLock, LeaseLost


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def contender(client: Any, name: str, clock: Clock) -> LeaseLock:
    return LeaseLock(client, "vlm-system", "vlm-operator", name, clock)


def spec(client: FakeClient) -> dict[str, Any]:
    return client.objects["Lease", "vlm-system", "vlm-operator"]["spec"]


def test_the_first_takes_it_and_keeps_it_while_the_second_waits(client: FakeClient, clock: Clock):
    first, second = contender(client, "first", clock), contender(client, "second", clock)
    assert first.try_once()
    for _ in range(10):
        clock.now += LEASE_SECONDS / 2
        assert not second.try_once()
        assert first.try_once()
    assert spec(client)["holderIdentity"] == "first"
    assert spec(client)["leaseTransitions"] == 0


def test_a_dead_holder_is_replaced_when_its_time_is_over_and_not_before(client: FakeClient, clock: Clock):
    contender(client, "first", clock).try_once()
    second = contender(client, "second", clock)
    assert not second.try_once()
    clock.now += LEASE_SECONDS - 1
    assert not second.try_once()
    clock.now += 2
    assert second.try_once()
    assert (spec(client)["holderIdentity"], spec(client)["leaseTransitions"]) == ("second", 1)


def test_clocks_of_other_machines_do_not_matter(client: FakeClient, clock: Clock):
    contender(client, "first", clock).try_once()
    spec(client)["renewTime"] = "1970-01-01T00:00:00.000000Z"
    assert not contender(client, "second", clock).try_once()


def test_a_holder_that_lost_it_notices(client: FakeClient, clock: Clock):
    first = contender(client, "first", clock)
    first.try_once()
    spec(client)["holderIdentity"] = "second"
    assert not first.try_once()


def test_a_released_lease_is_taken_at_once(client: FakeClient, clock: Clock):
    first, second = contender(client, "first", clock), contender(client, "second", clock)
    first.try_once()
    assert not second.try_once()
    first.release()
    assert second.try_once()


def test_nobody_releases_what_another_holds(client: FakeClient, clock: Clock):
    contender(client, "first", clock).try_once()
    contender(client, "second", clock).release()
    assert spec(client)["holderIdentity"] == "first"


def test_of_two_that_write_at_the_same_time_one_is_told_no(client: FakeClient, clock: Clock):
    contender(client, "first", clock).try_once()
    clock.now += 100
    second, third = contender(client, "second", clock), contender(client, "third", clock)
    assert not second.try_once()
    clock.now += 100
    stale = client.get

    def raced(*arguments: Any) -> Any:
        found = stale(*arguments)
        client.get = stale  # type: ignore[method-assign]
        third.try_once()
        clock.now += 100
        third.try_once()
        return found

    client.get = raced  # type: ignore[method-assign]
    assert not second.try_once()
    assert spec(client)["holderIdentity"] == "third"


def test_an_api_server_that_does_not_answer_is_an_error_and_not_a_no(client: FakeClient, clock: Clock):
    client.broken = ApiError(0, "NoAnswer", "down")
    with pytest.raises(ApiError):
        contender(client, "first", clock).try_once()
    contender(client, "first", clock).release()


class Elected:
    """An election whose requests are ``try_once``, with what it reported."""

    def __init__(self, try_once: Callable[[], bool]) -> None:
        self.events: list[str] = []
        self.lost = threading.Event()
        self.error: Exception | None = None
        self.lock = mock.Mock(try_once=try_once)
        self.thread = Election(
            self.lock,
            on_standby=lambda: self.events.append("standby"),
            on_held=lambda: self.events.append("held"),
            on_lost=self._lost,
        )
        self.thread.start()

    def _lost(self, error: Exception) -> None:
        self.error = error
        self.lost.set()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(lease, "RENEW_DEADLINE_SECONDS", 0.3)


def test_an_election_stands_by_once_then_holds_and_ends_when_another_takes_over(fast: None):
    answers = iter([False, ApiError(0, "NoAnswer", "away"), False, True, True, False])
    elected = Elected(mock.Mock(side_effect=answers))
    assert elected.lost.wait(20)
    assert elected.events == ["standby", "held"]
    assert isinstance(elected.error, LeaseLost)
    assert "another operator took the lease" in str(elected.error)


@pytest.mark.parametrize("how", ["hangs", "fails"])
def test_the_deadline_holds_whatever_a_request_does(fast: None, how: str):
    answer, first = threading.Event(), iter([True])

    def try_once() -> bool:
        if next(first, False):
            return True
        if how == "hangs":
            answer.wait(20)
        raise ApiError(0, "NoAnswer", "away")

    began = time.monotonic()
    elected = Elected(try_once)
    assert elected.lost.wait(10)
    assert time.monotonic() - began >= 0.3
    assert isinstance(elected.error, LeaseLost)
    answer.set()
    elected.thread.join(10)
    assert not elected.thread.is_alive()


def test_a_stopped_election_renews_no_more(fast: None):
    renewed = mock.Mock(return_value=True)
    elected = Elected(renewed)
    elected.thread.stop()
    elected.thread.join(10)
    assert not elected.thread.is_alive()
    before = renewed.call_count
    time.sleep(0.05)
    assert renewed.call_count == before
    assert not elected.lost.is_set()
