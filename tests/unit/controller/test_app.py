"""The operator's start."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from unit.controller.fakes import FakeClient

from minicluster.ports import free_port
from vlm_operator import __main__ as command
from vlm_operator.controller import app
from vlm_operator.controller.app import App, Options
from vlm_operator.controller.metrics import Metrics
from vlm_operator.controller.services import WatchFailed
from vlm_operator.kube.client import ApiError


def test_without_the_crd_it_says_what_is_missing_instead_of_waiting_for_ever():
    client = FakeClient()
    client.missing = {"VLMService"}

    async def start() -> None:
        await App(Options(runtime_image="x"))._watch(client)  # type: ignore[arg-type]

    with pytest.raises(WatchFailed, match=r"install the CRD vlmservices\.vlmserve\.dev"):
        asyncio.run(start())


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_a_start_waits_for_an_api_server_that_is_away_or_busy(monkeypatch: pytest.MonkeyPatch, status: int):
    monkeypatch.setattr(app, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(app, "Metrics", lambda: Metrics(CollectorRegistry()))
    answers: list[ApiError | bool] = [ApiError(status, "Busy", "not now"), True]

    class Client:
        def serves(self, kind: object) -> bool:
            answer = answers.pop(0)
            if isinstance(answer, ApiError):
                raise answer
            return answer

    async def start() -> bool:
        return await App(Options(runtime_image="x"))._knows_services(Client())  # type: ignore[arg-type]

    assert asyncio.run(start())
    assert not answers


@pytest.mark.parametrize(
    ("arguments", "variable", "expected"),
    [
        pytest.param([], None, "vlm-operator", id="nothing is said"),
        pytest.param([], "", "vlm-operator", id="an empty variable"),
        pytest.param([], "team-a", "team-a", id="the chart's variable"),
        pytest.param(["--lease-name", "team-b"], "team-a", "team-b", id="an option"),
    ],
)
def test_the_operator_takes_the_lease_that_it_was_told(monkeypatch, arguments, variable, expected):
    monkeypatch.delenv("VLM_OPERATOR_LEASE_NAME", raising=False)
    if variable is not None:
        monkeypatch.setenv("VLM_OPERATOR_LEASE_NAME", variable)
    monkeypatch.setenv("POD_NAMESPACE", "vlm-system")
    taken: list[tuple[str, str]] = []

    class Taken(Exception):
        pass

    def lock(client: object, namespace: str, name: str, identity: str) -> None:
        taken.append((namespace, name))
        raise Taken

    async def nothing_to_watch(self: App, client: object) -> tuple[None, None]:
        return None, None

    monkeypatch.setattr(app, "LeaseLock", lock)
    monkeypatch.setattr(app, "configure", lambda: None)
    monkeypatch.setattr(app, "Metrics", lambda: Metrics(CollectorRegistry()))
    monkeypatch.setattr(command, "_log_to_stderr", lambda *_: None)
    monkeypatch.setattr(App, "_watch", nothing_to_watch)
    with pytest.raises(Taken):
        command.main(["--runtime-image", "x", "--metrics-address", f"127.0.0.1:{free_port()}", *arguments])
    assert taken == [("vlm-system", expected)]


@pytest.mark.parametrize("name", ["My Lease", "a..b", "-a", "a" * 254])
def test_a_lease_name_that_no_object_can_have_is_refused(capsys, name):
    with pytest.raises(SystemExit):
        command.main(["--runtime-image", "x", f"--lease-name={name}"])
    assert f"--lease-name: '{name}' is no name of an object" in capsys.readouterr().err
