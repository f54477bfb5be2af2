"""What the engine answers to whom."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from vlm_runtime.sglang.guard import Guard, without_keys

INFO = {
    "api_key": "sk-user",
    "admin_api_key": "sk-admin",
    "ssl_keyfile_password": None,
    "launch_command": "--host 0.0.0.0 --api-key sk-user --port 8000",
    "max_total_num_tokens": 8192,
    "internal_states": [{"api_key": "sk-user", "note": "started with sk-admin"}],
}


async def engine(scope: Any, receive: Any, send: Any) -> None:
    """Answers everything, in two pieces."""
    body = json.dumps(INFO).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body[:10], "more_body": True})
    await send({"type": "http.response.body", "body": body[10:]})


def ask(
    path: str, client: str = "10.0.0.7", drain_file: str | None = None, **scope: Any
) -> tuple[int, bytes, dict[bytes, bytes]]:
    """Status, body and headers of the answer to a GET from that address, or to another ``method``."""
    sent: list[Any] = []

    async def run() -> None:
        async def send(message: Any) -> None:
            sent.append(message)

        await Guard(engine, drain_file)(
            {"type": "http", "method": "GET", "path": path, "client": (client, 1), **scope}, None, send
        )  # type: ignore[arg-type]

    asyncio.run(run())
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:]), dict(sent[0]["headers"])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/models",
        "/v1/loads",
        "/generate",
        "/health",
        "/ready",
        "/metrics",
        "/model_info",
        "/api/chat",
    ],
)
def test_what_serves_requests_is_answered_to_everyone(path: str) -> None:
    assert ask(path)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/flush_cache", "/start_profile", "/update_weights_from_disk", "/pause_generation", "/abort_request",
        "/set_internal_state", "/load_lora_adapter", "/configure_logging", "/flush_cache/", "/v1", "//v1/../flush_cache",
        "/something/of/tomorrow",
    ],
)  # fmt: skip
def test_everything_else_is_refused_to_other_pods_and_answered_inside(path: str) -> None:
    status, body, _ = ask(path)
    assert status == 403
    assert "kubectl port-forward" in json.loads(body)["error"]["message"]
    for local in ("127.0.0.1", "::1"):
        assert ask(path, client=local, method="POST")[0] == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_image_s_url_cannot_make_the_engine_control_itself(method: str) -> None:
    for local in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert ask("/flush_cache", client=local, method=method)[0] == 403
        assert ask("/v1/models", client=local, method=method)[0] == 200


def test_a_request_without_an_address_is_not_from_inside() -> None:
    assert ask("/flush_cache", client="")[0] == 403


def test_a_root_path_is_taken_away_as_the_router_does() -> None:
    assert ask("/vlm/v1/models", root_path="/vlm")[0] == 200
    assert ask("/vlm/flush_cache", root_path="/vlm")[0] == 403


@pytest.mark.parametrize("client", ["10.0.0.7", "127.0.0.1"])
def test_the_servers_settings_are_shown_without_its_keys(client: str) -> None:
    status, body, headers = ask("/server_info", client=client)
    assert status == 200
    assert b"sk-" not in body
    assert headers[b"content-length"] == str(len(body)).encode()
    shown = json.loads(body)
    assert shown["max_total_num_tokens"] == 8192
    assert shown["ssl_keyfile_password"] is None
    assert "--port 8000" in shown["launch_command"]


def test_an_answer_that_cannot_be_read_is_not_shown() -> None:
    assert without_keys(b"api_key sk-user") == b"{}"


def test_other_answers_are_passed_on_as_they_come() -> None:
    assert json.loads(ask("/v1/models")[1]) == INFO


def test_while_the_pod_drains_each_answer_ends_its_connection(tmp_path: Path) -> None:
    file = tmp_path / "drains"
    for draining, path in ((False, "/v1/models"), (True, "/v1/models"), (True, "/server_info"), (True, "/flush_cache")):
        file.touch() if draining else file.unlink(missing_ok=True)
        headers = ask(path, drain_file=str(file))[2]
        assert (headers.get(b"connection") == b"close") is draining, path


@pytest.mark.parametrize(("path", "closed"), [("/v1/realtime", False), ("/control", True)])
def test_a_websocket_to_a_control_path_is_closed(path: str, closed: bool) -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append("app")

    async def send(message: Any) -> None:
        seen.append(message["type"])

    scope = {"type": "websocket", "path": path, "client": ("10.0.0.7", 1)}
    asyncio.run(Guard(app)(scope, None, send))  # type: ignore[arg-type]
    assert seen == (["websocket.close"] if closed else ["app"])
