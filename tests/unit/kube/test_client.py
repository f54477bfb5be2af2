"""Lists, watches and the end of writing, against a small HTTP server."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from unit.controller.fakes import served

from vlm_operator.kube import kinds, lease
from vlm_operator.kube.client import ApiError, Client, deadline


class Server(http.server.BaseHTTPRequestHandler):
    """Two pages of ConfigMaps, a watch in pieces, and nothing else."""

    protocol_version = "HTTP/1.1"
    proxy: tuple[int, bytes] | None = None
    """What stands before it says this instead."""

    def do_GET(self) -> None:
        if self.proxy is not None and "watch=1" in self.path and self.proxy[0] == 200:
            self._stream([self.proxy[1] + b"\n"])
        elif self.proxy is not None:
            self._send(*self.proxy)
        elif "watch=1" in self.path:
            self._stream(
                [b'{"type":"ADDED","object":{"metadata":{"na', b'me":"a"}}}\n{"type":"BOOKMARK","object":{}}\n']
            )
        elif "configmaps" in self.path:
            first = "continue=next" not in self.path
            metadata = {"resourceVersion": "7"} | ({"continue": "next"} if first else {})
            self._answer(200, {"metadata": metadata, "items": [{"metadata": {"name": "a" if first else "b"}}]})
        else:
            self._answer(404, {"reason": "NotFound", "message": "the server could not find the requested resource"})

    def do_POST(self) -> None:
        self._answer(201, {"metadata": {"name": "made"}})

    def do_PUT(self) -> None:
        self._answer(200, {})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, parts: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Not into the test's output."""


def test_a_renewal_of_the_lease_that_hangs_is_given_up_in_time_for_another_and_sent_once(monkeypatch):
    asked = []

    class Silent(Server):
        def do_PUT(self) -> None:
            asked.append(self.path)
            hang.wait(20)

    hang = threading.Event()
    with served(Silent, monkeypatch, retries=None):
        leasing = Client(lambda *_: None, lease.TIMEOUT_SECONDS, repeats=False)
        began = time.monotonic()
        with pytest.raises(ApiError) as refused:
            leasing.replace(kinds.LEASE, {"metadata": {"namespace": "vlm-system", "name": "vlm-operator"}})
        took = time.monotonic() - began
        hang.set()
    assert refused.value.status == 0
    assert len(asked) == 1
    assert took >= lease.TIMEOUT_SECONDS[1]
    assert lease.TIMEOUT_SECONDS[1] + lease.RETRY_SECONDS < lease.RENEW_DEADLINE_SECONDS - 1.0


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with served(Server, monkeypatch):
        yield Client()


def test_all_pages_of_a_list_are_read_and_say_their_kind(client):
    found = client.list(kinds.CONFIG_MAP)
    assert [(o["kind"], o["metadata"]["name"]) for o in found] == [("ConfigMap", "a"), ("ConfigMap", "b")]


@pytest.mark.parametrize("kind", kinds.MAY_BE_MISSING, ids=lambda kind: kind.kind)
def test_of_a_kind_that_a_cluster_may_lack_there_are_none(client, kind):
    assert client.list(kind) == []


@pytest.mark.parametrize("kind", [kinds.DEPLOYMENT, kinds.POD, kinds.NODE, kinds.VLM_SERVICE], ids=lambda k: k.kind)
def test_a_kind_that_every_cluster_has_and_that_is_not_found_is_an_error_and_not_an_empty_cluster(client, kind):
    with pytest.raises(ApiError) as error:
        client.list(kind)
    assert error.value.status == 404


def test_events_of_a_watch_come_whole_whatever_the_pieces_that_they_are_sent_in(client):
    events = list(client.watch(kinds.CONFIG_MAP, version="7"))
    assert [e["type"] for e in events] == ["ADDED", "BOOKMARK"]
    assert events[0]["object"]["metadata"]["name"] == "a"


PAGE = (
    b"""<!DOCTYPE html>
<html><head><style>p { color: red }</style>%s</head>
<body><p>Your access &amp; requests are
<b>blocked</b>.</p><p>"""
    + b"Ask. " * 200
    + b"</p></body></html>"
)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'"Forbidden"', 'HTTP 403: "Forbidden"'),
        (b"null", "HTTP 403: null"),
        (b"[]", "HTTP 403: []"),
        (b"", "HTTP 403"),
        (b"\xff\xfe", "HTTP 403: \ufffd\ufffd"),
        (b"{}", "HTTP 403"),
        (b'{"message": "no", "reason": "Forbidden"}', "no"),
        (PAGE % b"<title>403\n Forbidden</title>", "HTTP 403: 403 Forbidden"),
    ],
)
def test_whatever_a_proxy_says_is_an_error_of_the_api_server_in_its_words(client, monkeypatch, body, says):
    monkeypatch.setattr(Server, "proxy", (403, body))
    with pytest.raises(ApiError) as error:
        client.list(kinds.CONFIG_MAP)
    assert (error.value.status, error.value.message) == (403, says)
    with pytest.raises(ApiError) as error:
        list(client.watch(kinds.CONFIG_MAP, version="7"))
    assert (error.value.status, error.value.message) == (403, says)


def test_of_a_page_without_a_title_the_text_is_told_on_one_short_line(client, monkeypatch):
    monkeypatch.setattr(Server, "proxy", (502, PAGE % b""))
    with pytest.raises(ApiError) as error:
        client.list(kinds.CONFIG_MAP)
    assert error.value.message.startswith("HTTP 502: Your access & requests are blocked . Ask. Ask. ")
    assert len(error.value.message) < 250
    assert "\n" not in error.value.message


@pytest.mark.parametrize("body", [PAGE % b"<title>Sign in</title>", b"[]", b'"ok"'])
def test_an_answer_that_is_none_of_an_api_server_is_not_taken_for_an_empty_cluster(client, monkeypatch, body):
    monkeypatch.setattr(Server, "proxy", (200, body))
    with pytest.raises(ApiError, match="the answer is not from an API server") as error:
        client.list(kinds.CONFIG_MAP)
    assert error.value.status == 0
    monkeypatch.setattr(Server, "proxy", (200, body.replace(b"\n", b" ")))
    with pytest.raises(ApiError, match="the answer is not from an API server"):
        list(client.watch(kinds.CONFIG_MAP, version="7"))


def test_after_the_lease_is_lost_nothing_is_written_but_leases(client):
    metadata = {"name": "a", "namespace": "default"}
    client.create(kinds.JOB, {"metadata": metadata})
    client.fence()
    for write in (
        lambda: client.create(kinds.JOB, {"metadata": metadata}),
        lambda: client.apply(kinds.CONFIG_MAP, {"metadata": metadata}, force=True),
        lambda: client.delete(kinds.CONFIG_MAP, {"metadata": {**metadata, "uid": "u"}}),
        lambda: client.merge(kinds.EVENT, "default", "a", {}),
        lambda: client.json_patch(kinds.VLM_SERVICE, "default", "a", [], subresource="status"),
    ):
        with pytest.raises(ApiError, match="another operator may work"):
            write()
    client.replace(kinds.LEASE, {"metadata": metadata})
    assert client.list(kinds.CONFIG_MAP)


def test_after_its_deadline_nothing_is_sent_and_a_block_inside_has_one_of_its_own(client):
    with deadline(0):
        with pytest.raises(ApiError) as refused:
            client.create(kinds.CONFIG_MAP, {"metadata": {"namespace": "default", "name": "a"}})
        with deadline(5):
            assert client.create(kinds.CONFIG_MAP, {"metadata": {"namespace": "default", "name": "a"}})
        with pytest.raises(ApiError):
            client.list(kinds.CONFIG_MAP)
    assert (refused.value.status, refused.value.reason) == (504, "Timeout")
    assert client.list(kinds.CONFIG_MAP)


def test_a_request_ends_with_the_deadline_of_its_thread(monkeypatch):
    hang = threading.Event()

    class Silent(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            hang.wait(10)

    with served(Silent, monkeypatch, retries=None), deadline(0.3):
        began = time.monotonic()
        with pytest.raises(ApiError):
            Client(repeats=False).replace(
                kinds.LEASE, {"metadata": {"namespace": "vlm-system", "name": "vlm-operator"}}
            )
        took = time.monotonic() - began
        hang.set()
    assert took < 3
