"""What the engine's answers mean."""

from __future__ import annotations

import errno
import http.client
import http.server
import json
from pathlib import Path

import pytest
from unit.bench.tls_servers import self_signed, serving
from unit.runtime.harness import make_plan

from minicluster.ports import free_port
from vlm_runtime.sglang.client import CannotAsk, EngineClient, EngineUnreachable
from vlm_runtime.sglang.command import engine_command


@pytest.fixture
def client() -> EngineClient:
    """Asks where nothing listens."""
    return EngineClient(engine_command(make_plan(), {}, ["python3"], port=free_port()), "0.5.23")


def test_a_closed_port_is_not_alive(client: EngineClient) -> None:
    assert client.is_alive(1.0) is False
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


def test_tls_accepts_a_certificate_for_any_name(tmp_path: Path) -> None:
    plan = make_plan(engine={"args": ["--ssl-certfile", "/tls/tls.crt"]})
    with serving(Certified, self_signed(tmp_path, "vlm")) as port:
        client = EngineClient(engine_command(plan, {"VLMSERVE_API_KEY": "sk-1"}, ["python3"], port=port), "0.5.23")
        assert client.is_serving().status == 200
        assert client.server_info() == {"path": "/server_info", "key": "Bearer sk-1"}
        assert json.loads(client.metrics())["path"] == "/metrics/"


@pytest.mark.parametrize("lack", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL])
def test_a_lack_of_local_resources_says_nothing_about_the_engine(
    client: EngineClient, lack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(_: http.client.HTTPConnection) -> None:
        raise OSError(lack, "none left")

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    assert client.is_alive(1.0) is True
    with pytest.raises(CannotAsk, match="none left in the runtime"):
        client.is_serving()
