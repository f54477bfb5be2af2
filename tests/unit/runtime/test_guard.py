"""Which paths are open to whom."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from vlm_runtime.sglang.inside.guard import Guard, without_keys

HOST = [(b"host", b"localhost:8000")]
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
            {"type": "http", "method": "GET", "path": path, "client": (client, 1), "headers": HOST, **scope}, None, send
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
        "/ready",
        "/metrics",
        "/model_info",
        "/api/chat",
    ],
)
def test_paths_that_serve_requests_are_open_to_everyone(path: str) -> None:
    assert ask(path)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/flush_cache", "/start_profile", "/update_weights_from_disk", "/pause_generation", "/abort_request",
        "/set_internal_state", "/load_lora_adapter", "/configure_logging", "/flush_cache/", "/v1", "//v1/../flush_cache",
        "/something/of/tomorrow",
    ],
)  # fmt: skip
def test_other_paths_are_open_inside_the_pod_only(path: str) -> None:
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


def test_a_root_path_is_removed_as_by_the_router() -> None:
    assert ask("/vlm/v1/models", root_path="/vlm")[0] == 200
    assert ask("/vlm/flush_cache", root_path="/vlm")[0] == 403


@pytest.mark.parametrize("client", ["10.0.0.7", "127.0.0.1"])
def test_server_info_is_shown_without_keys(client: str) -> None:
    status, body, headers = ask("/server_info", client=client)
    assert status == 200
    assert b"sk-" not in body
    assert headers[b"content-length"] == str(len(body)).encode()
    shown = json.loads(body)
    assert shown["max_total_num_tokens"] == 8192
    assert shown["ssl_keyfile_password"] is None
    assert "--port 8000" in shown["launch_command"]


def test_an_answer_that_is_not_json_is_not_shown() -> None:
    assert without_keys(b"api_key sk-user") == b"{}"


def test_other_answers_are_not_buffered() -> None:
    assert json.loads(ask("/v1/models")[1]) == INFO


def test_while_draining_each_answer_closes_its_connection(tmp_path: Path) -> None:
    file = tmp_path / "drains"
    for draining, path in ((False, "/v1/models"), (True, "/v1/models"), (True, "/server_info"), (True, "/flush_cache")):
        file.touch() if draining else file.unlink(missing_ok=True)
        headers = ask(path, drain_file=str(file))[2]
        assert (headers.get(b"connection") == b"close") is draining, path


def forwarded(scope: Any, key: str | None = None) -> list[Any]:
    """What the application is asked (a scope), or what it is spared (the messages of the refusal)."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)

    async def send(message: Any) -> None:
        seen.append(message)

    digest = hashlib.sha256(key.encode()).hexdigest() if key else None
    asyncio.run(Guard(app, None, digest)({"client": ("10.0.0.7", 1), "headers": HOST, **scope}, None, send))  # type: ignore[arg-type]
    return seen


@pytest.mark.parametrize(("path", "closed"), [("/v1/realtime", False), ("/control", True), ("/health_generate", True)])
def test_a_websocket_to_a_control_path_is_closed(path: str, closed: bool) -> None:
    (seen,) = forwarded({"type": "websocket", "path": path})
    assert seen["type"] == ("websocket.close" if closed else "websocket")


@pytest.mark.parametrize("client", ["10.0.0.7", "127.0.0.1"])
@pytest.mark.parametrize(
    ("authorization", "served"),
    [
        ([b"Bearer sk-1"], True), ([b"bearer sk-1"], True), ([], False), ([b"Bearer"], False), ([b"Bearer sk-2"], False),
        ([b"Basic sk-1"], False), ([b"sk-1"], False), ([b"Bearer sk-2", b"Bearer sk-1"], False), ([b"Bearer \xff"], False),
    ],
)  # fmt: skip
def test_a_websocket_needs_the_key(authorization: list[bytes], served: bool, client: str) -> None:
    headers = HOST + [(b"authorization", value) for value in authorization]
    scope = {"type": "websocket", "path": "/v1/realtime", "client": (client, 1), "headers": headers}
    assert forwarded(scope, "sk-1")[0]["type"] == ("websocket" if served else "websocket.close")


@pytest.mark.parametrize("client", ["10.0.0.7", "127.0.0.1"])
@pytest.mark.parametrize("target", ["http://a/v1/models", "x/health", "@a/health", "*", "a:443", ""])
def test_a_target_that_is_no_path_is_refused(target: str, client: str) -> None:
    for root in ("", "/vlm"):
        status, body, _ = ask(root + target, client=client, method="POST", root_path=root)
        assert (status, b"begins with /" in body) == (400, True)


POD = "10.1.2.3"


@pytest.mark.parametrize(
    ("client", "host", "own"),
    [
        ("127.0.0.1", "127.0.0.1:8000", True),
        ("::1", "[::1]:8000", True),
        (POD, f"{POD}:8000", True),  # the engine listens on this address only, through which the runtime asks
        ("10.0.0.7", "127.0.0.1:8000", False),
        ("10.0.0.7", f"{POD}:8000", False),
        ("127.0.0.1", "qwen3-vl.default.svc:8000", False),  # from a sidecar
        (POD, "qwen3-vl.default.svc:8000", False),
    ],
)
def test_only_this_pod_makes_the_engine_compute_a_token_for_its_health(client: str, host: str, own: bool) -> None:
    seen = {
        path: forwarded(
            {
                "type": "http", "method": "GET", "path": f"/vlm{path}", "root_path": "/vlm", "client": (client, 1),
                "server": (POD, 8000), "headers": [(b"host", host.encode())],
            }
        )[0]
        for path in ("/health", "/health_generate")
    }  # fmt: skip
    assert seen["/health"]["path"] == ("/vlm/health" if own else "/vlm/ready")
    assert seen["/health_generate"].get("status") == (None if own else 403)


@pytest.mark.parametrize("client", ["10.0.0.7", "127.0.0.1"])
@pytest.mark.parametrize(
    "hosts",
    [[b"x/health?"], [b""], [b"a", b"a"], [b"http://a"], [b"u@a"], [b"a#"], [b"a b"], [b"a:port"], [b"a\n"], []],
)
def test_a_host_that_would_change_the_path_is_refused(hosts: list[bytes], client: str) -> None:
    for path in ("/v1/chat/completions", "/server_info", "/flush_cache"):
        headers = [(b"host", host) for host in hosts]
        status, body, _ = ask(path, client=client, method="POST", http_version="1.1", headers=headers)
        assert (status, b"one Host header" in body) == (400, True)


@pytest.mark.parametrize("host", [b"qwen3-vl.team_a.svc.cluster.local:8000", b"10.0.0.1", b"[fd00::1]:8000", b"a."])
def test_ordinary_hosts_are_served(host: bytes) -> None:
    assert ask("/v1/models", headers=[(b"host", host)])[0] == 200


def test_a_request_of_http_1_0_needs_no_host() -> None:
    assert ask("/ready", http_version="1.0", headers=[])[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({b"host": b"localhost:8000"}, 200),
        ({b"host": b"[::1]:8000", b"origin": b"http://[::1]:8000"}, 200),
        ({b"host": b"localhost:8000", b"origin": b"https://evil.example"}, 403),
        ({b"host": b"localhost:8000", b"origin": b"null"}, 403),
        ({b"host": b"evil.example:8000"}, 403),
    ],
)
def test_a_web_page_behind_a_port_forward_controls_nothing(headers: dict[bytes, bytes], status: int) -> None:
    sent = list(headers.items())
    assert ask("/flush_cache", client="127.0.0.1", method="POST", headers=sent)[0] == status
    assert ask("/v1/chat/completions", client="127.0.0.1", method="POST", headers=sent)[0] == 200
