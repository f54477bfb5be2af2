"""What an answer, or none, says of the engine."""

from __future__ import annotations

import errno
import http.client
import http.server
import json
from pathlib import Path

import pytest
from unit.measure.certificates import self_signed, serving
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


class Certified(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked and the key that came."""

    def do_GET(self) -> None:
        body = json.dumps({"path": self.path, "key": self.headers.get("Authorization")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_engine_is_asked_over_tls_whatever_name_its_certificate_is_made_out_for(tmp_path: Path) -> None:
    plan = make_plan(engine={"args": ["--ssl-certfile", "/tls/tls.crt"]})
    with serving(Certified, self_signed(tmp_path, "vlm")) as port:
        client = EngineClient(engine_command(plan, {"VLMSERVE_API_KEY": "sk-1"}, ["python3"], port=port), "0.5.23")
        assert client.is_serving().status == 200
        assert client.server_info() == {"path": "/server_info", "key": "Bearer sk-1"}
        assert json.loads(client.metrics())["path"] == "/metrics/"


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
