"""Servers that speak TLS: the engine's own certificate is the only one that is right, and nothing is sent to another."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from unit.bench.test_driver import KEY, Benchmark, Drive, Engine, Output, Request, rounds_of
from unit.bench.tls_servers import self_signed, serving, vouched_for

from vlm_bench.load.target import Target, certificate_of, service_url
from vlm_bench.programs.server import UNTRUSTED, Server, pinned, wait_until_ready

Serve = Callable[[Path], str]


class Asked(Engine):
    """The engine, as long as nobody else is asked."""

    keys: list[str | None]

    def do_GET(self) -> None:
        self.keys.append(self.headers.get("Authorization"))
        super().do_GET()

    def do_POST(self) -> None:
        self.keys.append(self.headers.get("Authorization"))
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    monkeypatch.setattr(Asked, "keys", [], raising=False)
    monkeypatch.setenv("BENCH_KEY_0", KEY)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    return Asked.keys


@pytest.fixture
def serve(asked: list[str | None]) -> Iterator[Serve]:
    """Starts an engine with a certificate; its URL."""
    with ExitStack() as servers:
        yield lambda certificate: f"https://127.0.0.1:{servers.enter_context(serving(Asked, certificate))}"


class Posting(Benchmark):
    """Sends as SGLang's benchmark does: each request over a connection of its own, and a look at the server at the end."""

    def __init__(self, url: str) -> None:
        super().__init__({})
        self.url, self.seen_of_server = url, [0]
        self.requests.get = pytest.fail

    async def send(self, request_func_input: Request, pbar: Any = None) -> Output:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/v1/chat/completions", json={}) as answer,
        ):
            return Output(answer.status == 200)

    def cli_main(self) -> None:
        super().cli_main()
        found = self.requests.get(f"{self.url}/server_info", headers={})
        self.seen_of_server = [found.status_code, found.json()["page_size"]]


def target(url: str, certificate: Path | None, **changes: Any) -> dict[str, Any]:
    found = {
        "name": "ours", "url": url, "tokenizer": "/models/m", "model": None, "key_variable": "BENCH_KEY_0", "pods": [url],
        "settings": ["page_size"], "certificate": None if certificate is None else str(certificate),
    }  # fmt: skip
    return found | changes


def refusal(url: str, certificate: Path | None, drive: Drive, **changes: Any) -> str:
    """Why nothing was measured, told long before the ten minutes that a server is waited for."""
    targets = [target(url, certificate, **changes)]
    code, events, _ = drive(Posting(url), url, targets=targets, ready_seconds=600)
    assert (code, [event["event"] for event in events]) == (1, ["failed"])
    return str(events[0]["message"])


def test_an_engine_with_a_certificate_of_its_own_is_measured_like_any_other(
    serve: Serve, asked: list[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drive: Drive
) -> None:
    monkeypatch.setattr(Engine, "images", 5)
    certificate = self_signed(tmp_path, "vlm")
    # As some issuers write it: what stands behind comes after.
    certificate.write_text(certificate.read_text() + self_signed(tmp_path, "behind").read_text())
    url = serve(certificate)
    benchmark = Posting(url)
    before = aiohttp.ClientSession.post
    code, events, _ = drive(benchmark, url, targets=[target(url, certificate)])
    one, two = rounds_of(events)
    assert (code, one.failures, two.failures, len(one.answers)) == (0, 0, 0, 8)
    assert one.counters == {"vlmserve_images_received_total": 0}
    assert one.settings == {"page_size": 16}
    assert benchmark.seen_of_server == [200, 16]
    assert aiohttp.ClientSession.post is before
    assert benchmark.requests.get is pytest.fail


def test_a_server_with_another_certificate_is_refused_and_never_sees_the_key(
    serve: Serve, asked: list[str | None], tmp_path: Path, drive: Drive
) -> None:
    url = serve(self_signed(tmp_path, "other"))
    ours = self_signed(tmp_path, "vlm")
    said = refusal(url, ours, drive)
    assert said.startswith(
        f"{url}/v1/models: its certificate does not verify: self-signed certificate (it was compared with {ours}"
    )
    assert said.endswith("restart the service's pods)")
    assert asked == []


def test_what_is_wrong_with_the_engines_own_certificate_is_told_where_nobody_vouches_for_it_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(target("https://127.0.0.1:1", self_signed(tmp_path, "vlm")))
    words = iter([b"its certificate does not hold: it has expired", b"its certificate does not hold: self-signed"])
    monkeypatch.setattr(server, "get", lambda _: (UNTRUSTED, next(words)))
    assert "/v1/models: its certificate does not hold: it has expired (" in str(wait_until_ready(server, 600))


def test_what_stands_behind_the_engines_certificate_vouches_for_nobody_else(
    serve: Serve, asked: list[str | None], tmp_path: Path, drive: Drive
) -> None:
    other = vouched_for(tmp_path, "other")
    ours = tmp_path / "chain.pem"
    ours.write_text(self_signed(tmp_path, "vlm").read_text() + (tmp_path / "ca.crt").read_text())
    assert "its certificate does not verify" in refusal(serve(other), ours, drive)
    assert asked == []


def test_authorities_may_vouch_for_a_certificate_that_each_pod_has_for_itself(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drive: Drive
) -> None:
    url = serve(vouched_for(tmp_path, "theirs"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    targets = [target(url, self_signed(tmp_path, "vlm"))]
    code, events, _ = drive(Posting(url), url, targets=targets)
    assert (code, [each.failures for each in rounds_of(events)]) == (0, [0, 0])


@pytest.mark.parametrize(("text", "why"), [(None, "No such file or directory"), ("nothing", "it holds no certificate")])
def test_a_certificate_that_the_loads_pod_does_not_have_is_named(
    text: str | None, why: str, serve: Serve, asked: list[str | None], tmp_path: Path, drive: Drive
) -> None:
    file = tmp_path / "tls.crt"
    if text is not None:
        file.write_text(text)
    said = refusal(serve(self_signed(tmp_path, "vlm")), file, drive)
    assert said.endswith(f"({file}, the engine's certificate, cannot be read in the load's pod: {why})")
    assert asked == []


def test_another_server_that_nobody_vouches_for_is_refused_with_what_to_do(
    serve: Serve, asked: list[str | None], tmp_path: Path, drive: Drive
) -> None:
    url = serve(self_signed(tmp_path, "theirs"))
    said = refusal(url, None, drive, unknown=True, model="m")
    assert said.startswith(f"{url}/v1/chat/completions: its certificate does not verify: self-signed certificate (")
    assert "SSL_CERT_FILE" in said
    assert asked == []


def test_a_server_without_tls_is_told_from_one_that_starts(drive: Drive) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"https://127.0.0.1:{server.server_port}"
        assert refusal(url, None, drive, unknown=True) == f"{url}/v1/models: it does not speak TLS"
        server.shutdown()


def test_a_certificate_that_cannot_be_read_is_no_traceback() -> None:
    with pytest.raises(ValueError, match="its first certificate cannot be read"):
        pinned("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----")


@pytest.mark.parametrize("args", [["--ssl-certfile", "/tls/tls.crt"], ["--ssl-certfile=/tls/tls.crt"]])
def test_a_service_with_a_certificate_is_asked_by_https_its_pods_too(args: list[str]) -> None:
    file = certificate_of(["--model-path", "/models/m", *args, "--enable-metrics"])
    url = service_url("vlm", "team", file)
    told = Target("vlm", url, "/models/m", pods=("10.0.0.7", "fd00::7"), certificate=file).to_json(None)
    assert (told["url"], told["certificate"]) == ("https://vlm.team.svc:8000", "/tls/tls.crt")
    assert told["pods"] == ["https://10.0.0.7:8000", "https://[fd00::7]:8000"]


def test_a_service_without_a_certificate_is_asked_by_http() -> None:
    assert certificate_of(["--model-path", "/models/m", "--enable-metrics"]) is None
    told = Target("vlm", service_url("vlm", "team", None), "/models/m", pods=("10.0.0.7",)).to_json(None)
    assert (told["url"], told["pods"]) == ("http://vlm.team.svc:8000", ["http://10.0.0.7:8000"])
    assert json.loads(json.dumps(told))["certificate"] is None
    assert Server(told).trust is None
