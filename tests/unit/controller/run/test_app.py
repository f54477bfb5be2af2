"""The operator's start."""

import asyncio
import threading
import time
from typing import Any
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry
from unit.controller.fakes import FakeClient

from vlm_operator import __main__ as command
from vlm_operator.controller.run import app
from vlm_operator.controller.run.app import App, Options
from vlm_operator.controller.run.metrics import Metrics
from vlm_operator.controller.run.services import WatchFailed
from vlm_operator.kube import lease
from vlm_operator.kube.client import ApiError
from vlm_operator.kube.lease import LeaseLost


def start(monkeypatch: pytest.MonkeyPatch, client: Any) -> App:
    monkeypatch.setattr(app, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(app, "Metrics", lambda: Metrics(CollectorRegistry()))
    operator = App(Options(runtime_image="x"))
    operator._client = client
    return operator


def test_without_the_crd_it_says_what_is_missing_instead_of_waiting_forever(monkeypatch):
    client = FakeClient()
    client.missing = {"VLMService"}
    with pytest.raises(WatchFailed, match=r"install the CRD vlmservices\.vlmserve\.dev"):
        asyncio.run(start(monkeypatch, client)._wait_for_crd())


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_start_waits_for_an_api_server_that_is_away_or_busy(monkeypatch: pytest.MonkeyPatch, status: int):
    answers: list[ApiError | bool] = [ApiError(status, "Busy", "not now"), True]

    class Client:
        def serves(self, kind: object) -> bool:
            answer = answers.pop(0)
            if isinstance(answer, ApiError):
                raise answer
            return answer

    asyncio.run(start(monkeypatch, Client())._wait_for_crd())
    assert not answers


def test_a_failure_stops_all_writes_at_once_and_then_kopf(monkeypatch):
    operator = start(monkeypatch, client := FakeClient())
    fenced: list[bool] = []
    client.fence = lambda: fenced.append(operator._stop.is_set())  # type: ignore[attr-defined]

    async def fail() -> None:
        async def lose() -> None:
            raise LeaseLost("another operator took the lease")

        operator._spawn(lose(), "lead")
        await asyncio.wait_for(operator._stop.wait(), 20)

    asyncio.run(fail())
    assert fenced == [False]
    assert isinstance(operator._failure, LeaseLost)


def test_a_busy_loop_neither_loses_the_lease_nor_writes_after_it_is_lost(monkeypatch):
    operator = start(monkeypatch, client := FakeClient())
    renewals, fenced, taken = list[float](), threading.Event(), threading.Event()
    client.fence = fenced.set  # type: ignore[attr-defined]

    def renew() -> bool:
        renewals.append(time.monotonic())
        return not taken.is_set()

    monkeypatch.setattr(lease, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(lease, "RENEW_DEADLINE_SECONDS", 0.5)
    monkeypatch.setattr(app, "Client", mock.Mock())
    monkeypatch.setattr(app, "LeaseLock", lambda *_: mock.Mock(try_once=renew))

    async def lead() -> None:
        await operator._elected()
        before = len(renewals)
        time.sleep(1)  # noqa: ASYNC251  # the loop is busy
        assert len(renewals) > before + 5
        assert not fenced.is_set()
        taken.set()
        assert fenced.wait(20), "while the loop is still busy"
        assert operator._failure is None
        await asyncio.wait_for(operator._stop.wait(), 20)

    asyncio.run(lead())
    assert isinstance(operator._failure, LeaseLost)


@pytest.mark.parametrize("ends", [True, False], ids=["in time", "too late"])
def test_the_lease_is_given_up_only_once_no_write_is_under_way(monkeypatch, ends):
    monkeypatch.setattr(app, "ENDING_SECONDS", 0.2 if not ends else 20)
    operator, writing, events = start(monkeypatch, mock.Mock()), threading.Event(), list[str]()
    operator._cluster, operator._reports = mock.Mock(), mock.Mock()
    operator._election = mock.Mock(held=True, release=lambda: events.append("released"))

    def write() -> None:
        writing.wait(20 if ends else None)
        events.append("written")

    async def end() -> None:
        operator._reconciling.submit(write)
        if ends:
            asyncio.get_running_loop().call_later(0.1, writing.set)
        await operator._end()
        writing.set()

    asyncio.run(end())
    operator._reconciling.shutdown()
    assert events == (["written", "released"] if ends else ["written"])


@pytest.mark.parametrize(
    ("arguments", "variable", "expected"),
    [
        pytest.param([], None, "vlm-operator", id="nothing"),
        pytest.param([], "", "vlm-operator", id="an empty variable"),
        pytest.param([], "team-a", "team-a", id="the chart's variable"),
        pytest.param(["--lease-name", "team-b"], "team-a", "team-b", id="an option"),
    ],
)
def test_the_operator_takes_the_lease_that_its_options_name(monkeypatch, arguments, variable, expected):
    monkeypatch.delenv("VLM_OPERATOR_LEASE_NAME", raising=False)
    if variable is not None:
        monkeypatch.setenv("VLM_OPERATOR_LEASE_NAME", variable)
    monkeypatch.setenv("POD_NAMESPACE", "vlm-system")
    ran: list[Options] = []

    async def run(self: App) -> None:
        ran.append(self._options)

    monkeypatch.setattr(app, "Metrics", lambda: Metrics(CollectorRegistry()))
    monkeypatch.setattr(command, "_log_to_stderr", lambda *_: None)
    monkeypatch.setattr(App, "run", run)
    assert command.main(["--runtime-image", "x", *arguments]) == 0
    assert [(o.own_namespace, o.lease_name) for o in ran] == [("vlm-system", expected)]


@pytest.mark.parametrize("name", ["My Lease", "a..b", "-a", "a" * 254])
def test_a_lease_name_that_no_object_can_have_is_refused(capsys, name):
    with pytest.raises(SystemExit):
        command.main(["--runtime-image", "x", f"--lease-name={name}"])
    assert f"--lease-name: '{name}' is not an object name" in capsys.readouterr().err
