"""Leader election."""

from __future__ import annotations

from typing import Any

import pytest
from unit.controller.fakes import FakeClient

from vlm_operator.kube.client import ApiError
from vlm_operator.kube.lease import LEASE_SECONDS, LeaseLock


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def contender(client: Any, name: str, clock: Clock) -> LeaseLock:
    return LeaseLock(client, "vlm-system", "vlm-operator", name, clock)


def spec(client: FakeClient) -> dict[str, Any]:
    found: dict[str, Any] = client.objects["Lease", "vlm-system", "vlm-operator"]["spec"]
    return found


def test_the_first_takes_it_and_keeps_it_while_the_second_waits():
    client, clock = FakeClient(), Clock()
    first, second = contender(client, "first", clock), contender(client, "second", clock)
    assert first.try_once()
    for _ in range(10):
        clock.now += LEASE_SECONDS / 2
        assert not second.try_once()
        assert first.try_once()
    assert spec(client)["holderIdentity"] == "first"
    assert spec(client)["leaseTransitions"] == 0


def test_a_dead_holder_is_replaced_when_its_time_is_over_and_not_before():
    client, clock = FakeClient(), Clock()
    contender(client, "first", clock).try_once()
    second = contender(client, "second", clock)
    assert not second.try_once()
    clock.now += LEASE_SECONDS - 1
    assert not second.try_once()
    clock.now += 2
    assert second.try_once()
    assert (spec(client)["holderIdentity"], spec(client)["leaseTransitions"]) == ("second", 1)


def test_clocks_of_other_machines_do_not_matter():
    client, clock = FakeClient(), Clock()
    contender(client, "first", clock).try_once()
    spec(client)["renewTime"] = "1970-01-01T00:00:00.000000Z"
    assert not contender(client, "second", clock).try_once()


def test_a_holder_that_lost_it_notices():
    client, clock = FakeClient(), Clock()
    first = contender(client, "first", clock)
    first.try_once()
    spec(client)["holderIdentity"] = "second"
    assert not first.try_once()


def test_a_released_lease_is_taken_at_once():
    client, clock = FakeClient(), Clock()
    first, second = contender(client, "first", clock), contender(client, "second", clock)
    first.try_once()
    assert not second.try_once()
    first.release()
    assert second.try_once()


def test_nobody_releases_what_another_holds():
    client, clock = FakeClient(), Clock()
    contender(client, "first", clock).try_once()
    contender(client, "second", clock).release()
    assert spec(client)["holderIdentity"] == "first"


def test_of_two_that_write_at_the_same_time_one_is_told_no():
    client, clock = FakeClient(), Clock()
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


def test_an_api_server_that_does_not_answer_is_an_error_and_not_a_no():
    client, clock = FakeClient(), Clock()
    client.broken = ApiError(0, "NoAnswer", "down")
    with pytest.raises(ApiError):
        contender(client, "first", clock).try_once()
    contender(client, "first", clock).release()
