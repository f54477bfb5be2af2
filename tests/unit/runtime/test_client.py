"""What an answer, or none, says of the engine."""

from __future__ import annotations

import errno
import http.client

import pytest
from unit.runtime.harness import make_plan

from minicluster.ports import free_port
from vlm_runtime.client import CannotAsk, EngineClient, EngineUnreachable
from vlm_runtime.command import engine_command


@pytest.fixture
def client() -> EngineClient:
    """Asks where nothing listens."""
    return EngineClient(engine_command(make_plan(), {}, ["python3"], port=free_port()), "0.5.23")


def test_a_port_that_nobody_listens_on_gives_no_pulse(client: EngineClient) -> None:
    assert client.has_pulse(1.0) is False
    assert client.computes() is False
    with pytest.raises(EngineUnreachable, match="/ready: ConnectionRefusedError"):
        client.is_serving()


@pytest.mark.parametrize("lack", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL])
def test_a_lack_on_this_side_is_not_held_against_the_engine(
    client: EngineClient, lack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(_: http.client.HTTPConnection) -> None:
        raise OSError(lack, "none left")

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    assert client.has_pulse(1.0) is True
    with pytest.raises(CannotAsk, match="none left on this side"):
        client.is_serving()
