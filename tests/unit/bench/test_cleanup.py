"""What a command makes in the cluster goes again: whatever is answered, and whenever a signal comes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from unit.bench.api import Api

from vlm_bench.commands import cleanup, load_job
from vlm_bench.commands.cleanup import SIGNALS, ends_on_signals, shielded
from vlm_operator.cli.cluster import Connection
from vlm_operator.errors import ClusterError
from vlm_operator.kube.client import ApiError

JOB = {"metadata": {"name": "vlm-bench-1", "namespace": "team"}}
TWIN = {"metadata": {"name": "vlm-ab12cd", "namespace": "team"}}
AWAY = ApiError(0, "NoAnswer", "the API server did not answer: timed out")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(cleanup, "LATE_SECONDS", 0.02)


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """As in a terminal, whatever started the tests: below nohup the command leaves a signal alone."""
    ignored = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def api() -> Api:
    return Api()


def measure(api: Api, left: list[str] | None = None, body: Callable[[], None] = lambda: None) -> str:
    """As a comparison with a twin does it."""
    connection = Connection(api, "team")  # type: ignore[arg-type]
    kept = [] if left is None else left
    with ends_on_signals(), load_job.running(connection, JOB, kept), load_job.twin(connection, TWIN, kept):
        body()
        return "measured"


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_result_comes_when_everything_is_gone(api: Api) -> None:
    assert measure(api) == "measured"
    assert api.objects == {}
    assert api.requests == [
        "create Job",
        "create VLMService",
        "delete VLMService",
        "list Pod",
        "delete Job",
        "list Pod",
    ]


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("times", [1, 9])
def test_whenever_ctrl_c_comes_and_however_often_nothing_stays(api: Api, where: str, number: int, times: int) -> None:
    def at(request: str) -> None:
        if number < len(api.requests) <= number + times:
            interrupt()

    setattr(api, where, at)
    with pytest.raises(KeyboardInterrupt):
        measure(api)
    assert api.objects == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_in_the_middle_of_the_removal_is_told_to_wait(
    api: Api, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    def again(request: str) -> None:
        if request.startswith("delete"):
            signal.raise_signal(number)

    api.before = again
    with pytest.raises(KeyboardInterrupt):
        measure(api, body=interrupt)
    assert api.objects == {}
    errors = capfd.readouterr().err
    assert "deleting VLMService vlm-ab12cd" in errors
    assert "wait for it, or it stays" in errors


def test_a_second_signal_on_the_way_to_the_removal_changes_nothing(api: Api) -> None:
    def body() -> None:
        try:
            interrupt()
        finally:
            interrupt()
            api.requests.append("on the way")

    with pytest.raises(KeyboardInterrupt):
        measure(api, body=body)
    assert "on the way" in api.requests
    assert api.objects == {}


def test_a_signal_in_the_moment_before_the_removal_does_not_keep_it_from_happening(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    shields = [interrupt]

    def late_shield() -> AbstractContextManager[None]:
        if shields:
            shields.pop()()
        return shielded()

    monkeypatch.setattr(cleanup, "shielded", late_shield)
    with pytest.raises(KeyboardInterrupt):
        measure(api)
    assert api.objects == {}


def test_what_nohup_has_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ends_on_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_came_behind_a_shield_ends_the_command_afterwards() -> None:
    done = []

    def work() -> None:
        with shielded():
            interrupt()
            done.append("all of it")

    with ends_on_signals(), pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]


@pytest.mark.parametrize("kind", ["Job", "VLMService"])
def test_what_was_made_though_no_answer_came_is_removed(api: Api, kind: str) -> None:
    def unanswered(request: str) -> None:
        if request == f"create {kind}":
            raise AWAY

    api.after = unanswered
    with pytest.raises(ClusterError, match="timed out"):
        measure(api)
    assert "delete Job" in api.requests
    assert api.objects == {}


def test_what_is_made_only_after_the_command_gave_up_waiting_for_the_answer_is_removed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "LATE_SECONDS", 5.0)

    def unanswered(request: str) -> None:
        if request == "create Job":
            raise AWAY
        if request == "get Job" and api.requests.count(request) == 3:
            api.objects["vlm-bench-1"] = "late"

    api.before = unanswered
    with pytest.raises(ClusterError, match="timed out"):
        measure(api)
    assert api.objects == {}


def test_what_somebody_else_has_under_that_name_stays(api: Api) -> None:
    api.objects["vlm-bench-1"] = "theirs"
    with pytest.raises(ClusterError, match="already exists"):
        measure(api)
    assert api.objects == {"vlm-bench-1": "theirs"}
    assert api.requests == ["create Job"]


@pytest.mark.parametrize("request_", ["delete Job", "delete VLMService", "list Pod"])
def test_an_api_server_that_is_away_for_a_moment_is_asked_again(api: Api, request_: str) -> None:
    def sometimes(request: str) -> None:
        if request == request_ and api.requests.count(request) < 3:
            raise AWAY

    api.before = sometimes
    left: list[str] = []
    assert measure(api, left) == "measured"
    assert (api.objects, left) == ({}, [])


def test_what_could_not_be_removed_takes_no_result_and_is_named_with_the_command_that_does_it(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(request: str) -> None:
        if request == "delete VLMService":
            raise ApiError(403, "Forbidden", "you may not")

    api.before = refuse
    left: list[str] = []
    assert measure(api, left) == "measured"
    [why] = left
    assert "(you may not): run `kubectl -n team delete vlmservices vlm-ab12cd`" in why
    assert capsys.readouterr().err == f"error: {why}\n"
    assert [*api.objects] == ["vlm-ab12cd"]
