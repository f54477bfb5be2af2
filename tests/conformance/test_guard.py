"""The guard on a real uvicorn, in front of SGLang's own check of the key.

Releases leave FastAPI, Starlette and Uvicorn open, so an image holds those of its day: for 0.5.9 those of February 2026.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vlm_operator.sglang.catalogue.releases import newest

SERVERS = {
    "0.5.9": ["starlette==0.52.1", "fastapi==0.129.0", "uvicorn==0.41.0", "websockets==15.0.1"],
    newest(): ["websockets==15.0.1"],
}
KEY = "sk-guard"
HERE = Path(__file__).parent

Ask = Callable[..., tuple[int, dict[str, str]]]


@pytest.fixture(scope="session", params=SERVERS)
def site(request: pytest.FixtureRequest, release_path: Any) -> str:
    """PYTHONPATH with a release, and the server of its day in front of it."""
    version: str = request.param
    folder: Path = request.config.cache.mkdir("guard-servers") / version
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--target", f"{folder}.new"]
        subprocess.run([*command, *SERVERS[version]], check=True)
        Path(f"{folder}.new").rename(folder)
    return f"{folder}:{release_path(version)}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module", params=[1, 2], ids=["one-worker", "two-workers"])
def ask(request: pytest.FixtureRequest, site: str) -> Iterator[Ask]:
    """Sends a request as another pod does (from an address that is not loopback), or from this one: ``local``."""
    port, release = free_port(), site.split(":")[1]
    env = {
        **os.environ,
        "PYTHONPATH": f"{HERE}:{':'.join(p for p in sys.path if p.endswith(('runtime', 'crds')))}:{site}",
        "AUTH_FILE": f"{release}/sglang/srt/utils/auth.py",
        "AUTH_KEY": KEY,
        "VLMSERVE_GUARD_PORT": str(port),
        "VLMSERVE_GUARD_KEY_SHA256": hashlib.sha256(KEY.encode()).hexdigest(),
        "VLMSERVE_GUARD_LIMITS": "1000,2,5000,8000,1",
        "FORWARDED_ALLOW_IPS": "*",
        "SGLANG_HTTP_SERVER_APP_PATH": "guard_server:app",
    }
    command = [sys.executable, "-S", str(HERE / "guard_server.py"), str(port), str(request.param)]
    server = subprocess.Popen(command, env=env)
    other = own_address()

    def send(request_line: str, *headers: str, local: bool = False, body: bytes = b"") -> tuple[int, dict[str, str]]:
        address = "127.0.0.1" if local else other
        with socket.create_connection((address, port), timeout=10) as connection:
            names = {header.partition(":")[0] for header in headers}
            defaults = [h for h in ("Host: localhost", "Connection: close") if h.partition(":")[0] not in names]
            connection.sendall("\r\n".join([f"{request_line} HTTP/1.1", *defaults, *headers, "", ""]).encode() + body)
            answer = b""
            while part := connection.recv(65536):
                answer += part
                if b" 101 " in answer:
                    break
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body) if body.startswith(b'{"path"') else {}

    deadline = time.monotonic() + 60
    while True:
        try:
            assert send("GET /metrics")[0] == 200
            break
        except OSError:
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    yield send
    server.terminate()
    server.wait(30)


def own_address() -> str:
    """An address of this machine other than loopback, from which a connection to itself comes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


BEARER = f"Authorization: Bearer {KEY}"
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: " + "A" * 22 + "==",
)


def test_a_request_needs_the_key_and_an_honest_host(ask: Ask) -> None:
    assert ask("POST /v1/chat/completions", BEARER)[0] == 200
    assert ask("POST /v1/chat/completions")[0] == 401
    assert ask("POST /v1/chat/completions", "Host: x/health?")[0] == 400
    assert ask("POST /v1/chat/completions", "Host: a", "Host: b", BEARER)[0] == 400
    for target in ("x/health", "@a/health"):
        assert ask(f"POST {target}", BEARER)[0] == 400


def test_an_absolute_target_passes_nothing_by(ask: Ask) -> None:
    # h11 hands it on as it is; httptools, where installed, as the path of an ordinary target.
    assert ask("POST http://a/v1/chat/completions")[0] in (400, 401)
    assert ask("POST http://a/flush_cache", BEARER)[0] in (400, 403)


def test_nothing_in_front_of_the_guard_says_who_is_local(ask: Ask) -> None:
    assert ask("POST /flush_cache", BEARER, local=True)[0] == 200
    for claim in ("X-Forwarded-For: 127.0.0.1", "X-Forwarded-For: ::1", "Forwarded: for=127.0.0.1"):
        assert ask("POST /flush_cache", BEARER, claim)[0] == 403
    # The application still sees what the proxy says.
    assert ask("POST /v1/models", BEARER, "X-Forwarded-For: 192.0.2.7")[1]["client"] == "192.0.2.7"


def test_a_websocket_needs_the_key(ask: Ask) -> None:
    assert ask("GET /v1/realtime", *UPGRADE)[0] == 403
    assert ask("GET /v1/realtime", *UPGRADE, "Authorization: Bearer sk-other")[0] == 403
    assert ask("GET /v1/realtime", *UPGRADE, BEARER)[0] == 101


def test_the_health_that_computes_a_token_is_for_this_pod(ask: Ask) -> None:
    assert ask("GET /health", local=True)[1]["path"] == "/health"
    assert ask("GET /health", BEARER)[1]["path"] == "/ready"
    assert ask("GET /health", BEARER, "Host: tiny.default.svc:8000", local=True)[1]["path"] == "/ready"
    assert ask("GET /health_generate")[0] == 403


def test_a_body_ends_at_its_limit(ask: Ask) -> None:
    assert ask("POST /v1/upload", BEARER, "Content-Length: 1000", body=b"x" * 1000)[1]["path"] == "1000"
    assert ask("POST /v1/upload", BEARER, "Content-Length: 1001")[0] == 413
    chunk = b"1f4\r\n" + b"x" * 500 + b"\r\n"
    assert (
        ask("POST /v1/upload", BEARER, "Transfer-Encoding: chunked", body=chunk * 2 + b"0\r\n\r\n")[1]["path"] == "1000"
    )
    # It goes on sending, and is answered all the same.
    assert ask("POST /v1/upload", BEARER, "Transfer-Encoding: chunked", body=chunk * 3)[0] == 413
